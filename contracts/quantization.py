"""How a model is quantised, and whether mtplx runs that."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.contracts.tensor_header import shortened
from mtplx.contracts.tensors import TensorIndex

# MLX's modes: bits and group sizes that its kernels exist for.
_MODES: dict[str, tuple[frozenset[int], frozenset[int]]] = {
    "affine": (frozenset({2, 3, 4, 5, 6, 8}), frozenset({32, 64, 128})),
    "mxfp4": (frozenset({4}), frozenset({32})),
    "nvfp4": (frozenset({4}), frozenset({16})),
    "mxfp8": (frozenset({8}), frozenset({32})),
}
_HINT = "Use the bf16 release of the model, or convert that with mlx-lm."


def read_quantization(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The block of `config` that describes the weights: MLX's (`bits`, `group_size`, `mode`, maps
    by module path) or an FP8 one (`quant_method`, `weight_block_size`). None for plain weights.

    Raises UnsupportedModelError for every other scheme, and for bits or group sizes that MLX has
    no kernels for.
    """
    block = _block(config)
    if block is None:
        if (folder / "hf_quant_config.json").exists():
            raise _unsupported("hf_quant_config.json announces ModelOpt quantisation")
        return None
    if "quant_method" in block:
        _check_fp8(block)
    else:
        _check_mlx(block)
    return block


def check_undeclared(index: TensorIndex, head_names: Mapping[str, str]) -> None:
    """Packed trunk weights need a block in the config that says how they are packed."""
    for name, tensor in index.tensors.items():
        scales = name.removesuffix(".weight") + ".scales"
        if tensor.dtype == "U32" and scales in index.tensors and name not in head_names:
            raise _unsupported(
                f"tensor '{shortened(name)}' in {tensor.file} is packed, and config.json has no "
                "quantization"
            )


def summary(block: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`scheme`, `bits` (all widths used), `group_size`, `mode`, `overrides` (modules named)."""
    if block is None:
        return None
    if "bits" not in block:
        return {"scheme": "fp8", "bits": [8], "block": list(block["weight_block_size"])}
    overrides = [value for value in block.values() if isinstance(value, Mapping)]
    bits = {block["bits"], *(value["bits"] for value in overrides if "bits" in value)}
    return {
        "scheme": "mlx",
        "bits": sorted(bits),
        "group_size": block["group_size"],
        "mode": block.get("mode", "affine"),
        "overrides": len(overrides) + sum(isinstance(value, bool) for value in block.values()),
    }


def _block(config: Mapping[str, Any]) -> dict[str, Any] | None:
    text = config.get("text_config")
    for level in (config, text if isinstance(text, Mapping) else {}):
        for key in ("quantization", "quantization_config"):
            value = level.get(key)
            if isinstance(value, dict) and value:
                return value
            if value:
                raise _unsupported(f"config.json gives {key} as {type(value).__name__}")
    return None


def _check_fp8(block: Mapping[str, Any]) -> None:
    method = block["quant_method"]
    if method != "fp8":
        raise _unsupported(f"config.json announces quantisation by {shortened(ascii(method))}")
    size = block.get("weight_block_size")
    if not isinstance(size, list) or len(size) != 2 or not all(_is_positive(n) for n in size):
        raise _unsupported(
            f"config.json announces FP8 with weight_block_size {shortened(ascii(size))}"
        )


def _is_positive(value: Any) -> bool:
    return type(value) is int and value > 0


def _check_mlx(block: Mapping[str, Any]) -> None:
    _check_mode("quantization", block)
    for path, value in block.items():
        if isinstance(value, Mapping):
            _check_mode(f"quantization of '{shortened(path)}'", value, block)


def _check_mode(
    what: str, spec: Mapping[str, Any], default: Mapping[str, Any] | None = None
) -> None:
    """`spec` must name a mode, bits and group size that exist together."""
    values = {**{k: (default or {}).get(k) for k in ("bits", "group_size", "mode")}, **spec}
    mode = values.get("mode") or "affine"
    bits, group = values.get("bits"), values.get("group_size")
    if not isinstance(mode, str) or mode not in _MODES:
        raise _unsupported(f"config.json gives {what} the mode {shortened(ascii(mode))}")
    for name, value, allowed in zip(
        ("bits", "group_size"), (bits, group), _MODES[mode], strict=True
    ):
        if type(value) is not int or value not in allowed:
            raise _unsupported(
                f"config.json gives {what} {name} {shortened(ascii(value))}; "
                f"{mode} has {sorted(allowed)}"
            )


def _unsupported(fault: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"Unsupported quantisation: {fault}.", hint=_HINT)
