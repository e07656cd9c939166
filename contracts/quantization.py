"""How a model is quantised, and whether mtplx runs that."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.packed_scheme import (
    PackedScheme,
    is_block,
    read_scheme,
    unsupported_quantization,
)
from mtplx.contracts.packed_tensors import FOREIGN_SUFFIXES, check_fp8_blocks, packed_layers
from mtplx.contracts.tensor_header import shortened
from mtplx.contracts.tensors import TensorIndex

# MLX's modes: bits and group sizes that its kernels exist for.
MODES: dict[str, tuple[frozenset[int], frozenset[int]]] = {
    "affine": (frozenset({2, 3, 4, 5, 6, 8}), frozenset({32, 64, 128})),
    "mxfp4": (frozenset({4}), frozenset({32})),
    "nvfp4": (frozenset({4}), frozenset({16})),
    "mxfp8": (frozenset({8}), frozenset({32})),
}
_FP8_BLOCK = (128, 128)


def read_quantization(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The block of `config` that describes the weights: MLX's (`bits`, `group_size`, `mode`, maps
    by module path) or one with a `quant_method`: fp8, awq, gptq, compressed-tensors. None for
    plain weights.

    Raises UnsupportedModelError for every other scheme, for variants that mtplx cannot unpack,
    and for bits or group sizes that MLX has no kernels for.
    """
    block = _block(config)
    if block is None:
        if (folder / "hf_quant_config.json").exists():
            raise unsupported_quantization("hf_quant_config.json announces ModelOpt quantisation")
        return None
    if "quant_method" not in block:
        _check_mlx(block)
    elif read_scheme(block) is None:
        _check_fp8(block)
    return block


def packed_scheme(config: Mapping[str, Any]) -> PackedScheme | None:
    """How AWQ, GPTQ or compressed-tensors packed the weights; None for plain, FP8 and MLX ones.

    Raises UnsupportedModelError for variants that mtplx cannot unpack.
    """
    return read_scheme(_block(config) or {})


def fp8_block(config: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and columns of one FP8 block; 128 x 128 when nothing is said.

    Raises UnsupportedModelError when `weight_block_size` is not a pair of positive integers.
    """
    block = _block(config) or {}
    if "weight_block_size" not in block:
        return _FP8_BLOCK
    _check_fp8_block(block)
    rows, columns = block["weight_block_size"]
    return rows, columns


def check_tensors(
    index: TensorIndex, block: Mapping[str, Any] | None, head_names: Mapping[str, str]
) -> None:
    """What `block` says of the weights must be true of the headers, for trunk and head.

    Raises UnsupportedModelError for packed weights that nothing describes, and CorruptModelError
    for packed tensors whose scales or other partners are missing or do not fit.
    """
    check_fp8_blocks(index.tensors, fp8_block({"quantization_config": block}))
    scheme = read_scheme(block or {})
    if scheme is not None:
        packed_layers(index.tensors, scheme)
        return
    if block is None:
        _check_undeclared(index, head_names)
    elif block.get("quant_method") == "fp8":
        _check_scales(index)
    _check_foreign(index)


def summary(block: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`scheme`, `bits` (all widths used) and what else tells the scheme: `group_size` (null: one
    scale a row or block, or several sizes), `mode`, `overrides` (modules named), `block`.
    """
    if block is None:
        return None
    scheme = read_scheme(block)
    if scheme is not None:
        sizes = {packing.group_size for packing in scheme.packings}
        return {
            "scheme": scheme.method,
            "bits": sorted({packing.bits for packing in scheme.packings}),
            "group_size": sizes.pop() if len(sizes) == 1 else None,
        }
    if "quant_method" in block:
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


def _check_undeclared(index: TensorIndex, head_names: Mapping[str, str]) -> None:
    """Packed trunk weights need a block in the config that says how they are packed."""
    for name, tensor in index.tensors.items():
        scales = name.removesuffix(".weight") + ".scales"
        if tensor.dtype == "U32" and scales in index.tensors and name not in head_names:
            raise unsupported_quantization(
                f"tensor '{shortened(name)}' in {tensor.file} is packed, and config.json has no "
                "quantization"
            )


def _check_foreign(index: TensorIndex) -> None:
    """What the block does not speak of may not be packed by another tool."""
    for name, tensor in index.tensors.items():
        if name.endswith(FOREIGN_SUFFIXES) and not name.endswith("_scale_inv"):
            raise unsupported_quantization(
                f"tensor '{shortened(name)}' in {tensor.file} belongs to a packed weight, and "
                "config.json does not say how it is packed"
            )


def _check_scales(index: TensorIndex) -> None:
    for name, tensor in index.tensors.items():
        if tensor.dtype == "F8_E4M3" and f"{name}_scale_inv" not in index.tensors:
            raise CorruptModelError(
                f"{shortened(name)} in {tensor.file} is FP8, and {shortened(name)}_scale_inv is "
                "missing.",
                hint="Fetch the model again, or use the bf16 release of it.",
            )


def _block(config: Mapping[str, Any]) -> dict[str, Any] | None:
    text = config.get("text_config")
    for level in (config, text if isinstance(text, Mapping) else {}):
        for key in ("quantization", "quantization_config"):
            value = level.get(key)
            if isinstance(value, dict) and value:
                return value
            if value:
                raise unsupported_quantization(f"config.json gives {key} as {type(value).__name__}")
    return None


def _check_fp8(block: Mapping[str, Any]) -> None:
    method = block["quant_method"]
    if method != "fp8":
        raise unsupported_quantization(
            f"config.json announces quantisation by {shortened(ascii(method))}"
        )
    _check_fp8_block(block)


def _check_fp8_block(block: Mapping[str, Any]) -> None:
    size = block.get("weight_block_size")
    if not is_block(size):
        raise unsupported_quantization(
            f"config.json announces FP8 with weight_block_size {shortened(ascii(size))}, expected "
            "two positive integers such as [128, 128]"
        )


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
    if not isinstance(mode, str) or mode not in MODES:
        raise unsupported_quantization(
            f"config.json gives {what} the mode {shortened(ascii(mode))}"
        )
    for name, value, allowed in zip(
        ("bits", "group_size"), (bits, group), MODES[mode], strict=True
    ):
        if type(value) is not int or value not in allowed:
            raise unsupported_quantization(
                f"config.json gives {what} {name} {shortened(ascii(value))}; "
                f"{mode} has {sorted(allowed)}"
            )
