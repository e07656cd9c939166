"""What config.json says of weights that AutoAWQ, GPTQ tools or compressed-tensors packed.

The block is checked for everything that would change the meaning of the numbers; which tensors
are packed is told by the tensors themselves, as ignore lists are often wrong.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.contracts.tensor_header import shortened

Method = Literal["awq", "gptq", "compressed-tensors"]
Storage = Literal["words", "int8", "fp8"]
Strategy = Literal["tensor", "channel", "group", "block"]

_HINT = "Use the bf16 release of the model, or convert that with mlx-lm."
_GPTQ_BITS = (2, 3, 4, 8)
# GPTQ tools store `zero - 1` in the format that they write by default, and `zero` in the newer.
_GPTQ_ZERO_OFFSETS = {"gptq": 1, "gptq_v2": 0}


@dataclass(frozen=True, slots=True)
class Packing:
    """How one kind of weight is stored.

    `bits` a value; `storage`: several values in 32-bit words, or one in each int8 or e4m3 byte.
    Scales are for the whole tensor, each output (channel), `group_size` inputs of an output, or
    a `block` of outputs and inputs. `has_zeros`: zero points must come with the weight.
    """

    bits: int
    strategy: Strategy
    group_size: int | None = None
    block: tuple[int, int] | None = None
    storage: Storage = "words"
    has_zeros: bool = False

    def num_groups(self, inputs: int) -> int:
        """Scales along `inputs` inputs."""
        return 1 if self.group_size is None else -(-inputs // self.group_size)

    def __str__(self) -> str:
        """What messages say of it."""
        if self.block is not None:
            return f"{self.bits} bits in blocks of {self.block[0]}x{self.block[1]}"
        if self.group_size is not None:
            return f"{self.bits} bits in groups of {self.group_size}"
        return f"{self.bits} bits with one scale a {self.strategy}"


@dataclass(frozen=True, slots=True)
class PackedScheme:
    """The packings of a checkpoint.

    `zero_offset` is added to stored zero points. `is_ordered`: inputs are assigned to groups by
    an index (`g_idx`) rather than in turn.
    """

    method: Method
    packings: tuple[Packing, ...]
    zero_offset: int = 0
    is_ordered: bool = False


def read_scheme(block: Mapping[str, Any]) -> PackedScheme | None:
    """The scheme of a quantisation block; None for methods that are read elsewhere.

    Raises UnsupportedModelError for variants that mtplx cannot unpack.
    """
    match block.get("quant_method"):
        case "awq":
            return _awq(block)
        case "gptq":
            return _gptq(block)
        case "compressed-tensors":
            return PackedScheme("compressed-tensors", tuple(_compressed(block)))
    return None


def unsupported_quantization(fault: str) -> UnsupportedModelError:
    """The error for a scheme that is not run."""
    return UnsupportedModelError(f"Unsupported quantisation: {fault}.", hint=_HINT)


def _awq(block: Mapping[str, Any]) -> PackedScheme:
    version = block.get("version", "gemm")
    if not isinstance(version, str) or version.lower() != "gemm":
        raise _refused("awq", "version", version, "gemm")
    if block.get("backend") == "llm-awq":
        raise _refused("awq", "backend", "llm-awq", "autoawq")
    if block.get("bits") != 4:
        raise _refused("awq", "bits", block.get("bits"), "4")
    return PackedScheme("awq", (_in_groups("awq", 4, block.get("group_size")),))


def _gptq(block: Mapping[str, Any]) -> PackedScheme:
    if block.get("is_marlin_format"):
        raise _refused("gptq", "is_marlin_format", True, "false")
    form = block.get("checkpoint_format", "gptq")
    if not isinstance(form, str) or form not in _GPTQ_ZERO_OFFSETS:
        raise _refused("gptq", "checkpoint_format", form, " or ".join(_GPTQ_ZERO_OFFSETS))
    if block.get("pack_dtype", "int32") != "int32":
        raise _refused("gptq", "pack_dtype", block["pack_dtype"], "int32")
    settings = list(_gptq_settings(block))
    return PackedScheme(
        "gptq",
        tuple(dict.fromkeys(_gptq_packing(setting) for setting in settings)),
        zero_offset=_GPTQ_ZERO_OFFSETS[form],
        is_ordered=any(setting.get("desc_act") is True for setting in settings),
    )


def _gptq_settings(block: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The settings of the whole model, then those of its `dynamic` rules that pack anything."""
    yield block
    rules = block.get("dynamic") or {}
    if not isinstance(rules, Mapping):
        raise _refused("gptq", "dynamic", rules, "rules by module pattern")
    for pattern, rule in rules.items():
        if not pattern.startswith("-") and isinstance(rule, Mapping):
            yield {**block, **rule}


def _gptq_packing(setting: Mapping[str, Any]) -> Packing:
    bits = setting.get("bits")
    if type(bits) is not int or bits not in _GPTQ_BITS:
        raise _refused("gptq", "bits", bits, f"one of {', '.join(map(str, _GPTQ_BITS))}")
    return _in_groups("gptq", bits, setting.get("group_size"))


def _in_groups(method: Method, bits: int, size: Any) -> Packing:
    if size == -1 and type(size) is int:
        return Packing(bits, "channel", has_zeros=True)
    if not _is_positive(size):
        raise _refused(method, "group_size", size, "-1 or a positive integer")
    return Packing(bits, "group", group_size=size, has_zeros=True)


def _compressed(block: Mapping[str, Any]) -> Iterator[Packing]:
    method: Method = "compressed-tensors"
    form = block.get("format")
    sparsity = block.get("sparsity_config")
    sparse = sparsity.get("format") if isinstance(sparsity, Mapping) else None
    if sparse not in (None, "dense"):
        raise _refused(method, "sparsity format", sparse, "dense")
    if block.get("transform_config"):
        raise _refused(method, "transform_config", block["transform_config"], "none")
    groups = block.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _refused(method, "config_groups", groups, "the settings of each group of modules")
    for name, group in groups.items():
        if not isinstance(group, Mapping):
            raise _refused(method, f"config_groups.{name}", group, "an object")
        weights = group.get("weights")
        if isinstance(weights, Mapping):
            yield _compressed_packing(group.get("format") or form, weights)


# By format: where the values lie, their type, widths and the strategies of their scales.
_FORMATS: dict[str, tuple[Storage, str, tuple[int, ...], tuple[Strategy, ...]]] = {
    "pack-quantized": ("words", "int", (4, 8), ("group", "channel")),
    "int-quantized": ("int8", "int", (4, 8), ("tensor", "channel", "group")),
    "float-quantized": ("fp8", "float", (8,), ("tensor", "channel", "group", "block")),
}


def _compressed_packing(form: Any, weights: Mapping[str, Any]) -> Packing:
    method: Method = "compressed-tensors"
    if not isinstance(form, str) or form not in _FORMATS:
        raise _refused(method, "format", form, f"one of {', '.join(_FORMATS)}")
    storage, kind, widths, strategies = _FORMATS[form]
    bits, strategy = weights.get("num_bits"), weights.get("strategy")
    if weights.get("type", "int") != kind:
        raise _refused(method, f"{form} type", weights.get("type"), kind)
    if type(bits) is not int or bits not in widths:
        raise _refused(method, f"{form} num_bits", bits, " or ".join(map(str, widths)))
    if strategy not in strategies:
        raise _refused(method, f"{form} strategy", strategy, " or ".join(strategies))
    size, block = weights.get("group_size"), weights.get("block_structure")
    if strategy == "group" and not _is_positive(size):
        raise _refused(method, f"{form} group_size", size, "a positive integer")
    cells = (block[0], block[1]) if is_block(block) else None
    if strategy == "block" and cells is None:
        raise _refused(method, f"{form} block_structure", block, "two positive integers")
    return Packing(
        bits,
        strategy,
        group_size=size if strategy == "group" else None,
        block=cells if strategy == "block" else None,
        storage=storage,
        has_zeros=kind == "int" and weights.get("symmetric") is False,
    )


def is_block(value: Any) -> TypeGuard[list[int]]:
    """Whether `value` gives rows and columns of a block, such as [128, 128]."""
    return isinstance(value, list) and len(value) == 2 and all(_is_positive(n) for n in value)


def _is_positive(value: Any) -> bool:
    return type(value) is int and value > 0


def _refused(method: Method, key: str, found: Any, expected: str) -> UnsupportedModelError:
    shown = shortened(ascii(found))
    return unsupported_quantization(
        f"config.json announces {method} with {key} {shown}, expected {expected}"
    )
