"""Whether packed tensors come with all that gives them values, from names, dtypes and shapes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.packed_scheme import PackedScheme, Packing
from mtplx.contracts.tensor_header import shortened

#: The tensors that hold packed values, in the place of `X.weight`.
PACKED_SUFFIXES = (".qweight", ".weight_packed")
#: Names that no plain or MLX checkpoint has.
FOREIGN_SUFFIXES = (*PACKED_SUFFIXES, ".qzeros", ".g_idx", ".weight_scale", ".weight_scale_inv")
#: Scales of activations and caches: mtplx quantises neither, so they have no use here.
ACTIVATION_SUFFIXES = (
    *(".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point"),
    *(".k_scale", ".v_scale", ".q_scale", ".k_zero_point", ".v_zero_point"),
)

_WORDS = ("I32", "U32")
_BYTES = {"I8": "int8", "F8_E4M3": "fp8"}
_FETCH_AGAIN = "Fetch the model again, or use the bf16 release of it."


class Stored(Protocol):
    """A tensor as a safetensors header describes it."""

    @property
    def dtype(self) -> str:
        """Its safetensors dtype."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        ...


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """One packed weight `[outputs, inputs]`: `name` of the tensor that holds its values.

    Words may be padded; then `inputs` counts the padding too.
    """

    name: str
    outputs: int
    inputs: int
    packing: Packing

    @property
    def stem(self) -> str:
        """The module's name."""
        return self.name.rpartition(".")[0]


def plain_name(name: str) -> str:
    """The name under which a packed weight is read: `X.weight` for `X.qweight`."""
    stem, dot, last = name.rpartition(".")
    return f"{stem}.weight" if dot + last in PACKED_SUFFIXES else name


def packed_layers(tensors: Mapping[str, Stored], scheme: PackedScheme) -> list[PackedLayer]:
    """Every weight that `scheme` packed among `tensors`.

    Raises CorruptModelError for a packed tensor without its partners, of a wrong dtype or shape,
    and for partners without their weight.
    """
    partners: tuple[str, ...]
    if scheme.method == "compressed-tensors":
        layers = list(_compressed_layers(tensors, scheme))
        partners = (".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx")
    else:
        layers = [
            _transposed_layer(name.removesuffix(".qweight"), tensors, scheme)
            for name in tensors
            if name.endswith(".qweight")
        ]
        partners = (".scales", ".qzeros", ".g_idx")
    packed = {layer.stem: layer.name for layer in layers}
    _check_strangers(tensors, packed, partners, scheme.method)
    return layers


def check_fp8_blocks(tensors: Mapping[str, Stored], block: tuple[int, int]) -> None:
    """Every `X_scale_inv` must fit the e4m3 tensor `X` (deepseek-ai/DeepSeek-V3 README_WEIGHTS).

    Raises CorruptModelError.
    """
    for name, scale in tensors.items():
        if not name.endswith("_scale_inv"):
            continue
        target = name.removesuffix("_scale_inv")
        if target not in tensors:
            raise CorruptModelError(
                f"{shortened(name)} has no weight {shortened(target)} beside it."
            )
        _expect(target, tensors[target], "F8_E4M3", rank=2)
        rows, columns = tensors[target].shape
        expected = (-(-rows // block[0]), -(-columns // block[1]))
        if scale.shape != expected:
            raise CorruptModelError(
                f"{shortened(target)}: scales of shape {scale.shape}, expected {expected} for "
                f"blocks of {block}.",
                hint=_FETCH_AGAIN,
            )


def words_packing(
    name: str, tensors: Mapping[str, Stored], scheme: PackedScheme, inputs: int | None = None
) -> Packing:
    """The packing of `scheme` that the words and scales of a compressed-tensors weight fit.

    Without `inputs`, which only the values of `weight_shape` tell, any padding is allowed.
    """
    outputs, words = tensors[name].shape
    scale = tensors[name.removesuffix("_packed") + "_scale"].shape
    for packing in scheme.packings:
        per_word = 32 // packing.bits
        padded = words * per_word
        possible = range(max(1, padded - per_word + 1), padded + 1) if inputs is None else (inputs,)
        if packing.storage == "words" and any(
            -(-n // per_word) == words and scale in _scale_shapes(packing, outputs, n)
            for n in possible
        ):
            return packing
    raise CorruptModelError(
        f"{shortened(name)} of shape {(outputs, words)} and its weight_scale of shape {scale} do "
        f"not fit {'' if inputs is None else f'{inputs} inputs with '}{_shown(scheme)}.",
        hint=_FETCH_AGAIN,
    )


def _transposed_layer(
    stem: str, tensors: Mapping[str, Stored], scheme: PackedScheme
) -> PackedLayer:
    """AWQ packs `[in, out]` along the outputs, GPTQ along the inputs; both scale `[groups, out]`."""
    name = f"{stem}.qweight"
    words = _expect(name, tensors[name], *_WORDS, rank=2)
    scales = _partner(name, f"{stem}.scales", tensors)
    zeros = _partner(name, f"{stem}.qzeros", tensors)
    _expect(f"{stem}.scales", scales, "F16", "BF16", "F32", rank=2)
    _expect(f"{stem}.qzeros", zeros, *_WORDS, rank=2)
    outputs = scales.shape[1]
    for packing in scheme.packings:
        inputs = words[0] if scheme.method == "awq" else words[0] * 32 // packing.bits
        in_words = outputs * packing.bits / 32
        expected = (
            (inputs, in_words) if scheme.method == "awq" else (inputs * packing.bits / 32, outputs)
        )
        groups = packing.num_groups(inputs)
        if (words, scales.shape, zeros.shape) == (expected, (groups, outputs), (groups, in_words)):
            break
    else:
        raise CorruptModelError(
            f"{shortened(name)} of shape {words}, its scales of shape {scales.shape} and qzeros of "
            f"shape {zeros.shape} do not fit {scheme.method} with {_shown(scheme)}.",
            hint=_FETCH_AGAIN,
        )
    if scheme.is_ordered:
        _partner(name, f"{stem}.g_idx", tensors)
    _check_order(f"{stem}.g_idx", tensors, inputs)
    return PackedLayer(name, outputs, inputs, packing)


def _compressed_layers(
    tensors: Mapping[str, Stored], scheme: PackedScheme
) -> Iterator[PackedLayer]:
    for name, tensor in tensors.items():
        if name.endswith(".weight_packed"):
            yield _words_layer(name, tensors, scheme)
        elif (
            name.endswith(".weight")
            and tensor.dtype in _BYTES
            and f"{name}_scale_inv" not in tensors
        ):
            yield _bytes_layer(name, tensors, scheme)


def _words_layer(name: str, tensors: Mapping[str, Stored], scheme: PackedScheme) -> PackedLayer:
    weight = name.removesuffix("_packed")
    outputs, words = _expect(name, tensors[name], *_WORDS, rank=2)
    scale = _partner(name, f"{weight}_scale", tensors)
    _expect(f"{weight}_scale", scale, "F16", "BF16", "F32")
    shape = _partner(name, f"{weight}_shape", tensors)
    _expect(f"{weight}_shape", shape, "I64", "I32", rank=1)
    packing = words_packing(name, tensors, scheme)
    per_word = 32 // packing.bits
    packed_zeros = (-(-outputs // per_word), *scale.shape[1:])
    _check_zeros(name, tensors, packing, {"I32": packed_zeros, "I8": scale.shape})
    inputs = words * per_word
    _check_order(f"{weight}_g_idx", tensors, inputs, padding=per_word - 1)
    return PackedLayer(name, outputs, inputs, packing)


def _bytes_layer(name: str, tensors: Mapping[str, Stored], scheme: PackedScheme) -> PackedLayer:
    outputs, inputs = _expect(name, tensors[name], *_BYTES, rank=2)
    scale = _partner(name, f"{name}_scale", tensors)
    _expect(f"{name}_scale", scale, "F16", "BF16", "F32")
    for packing in scheme.packings:
        is_stored_so = packing.storage == _BYTES[tensors[name].dtype]
        if is_stored_so and scale.shape in _scale_shapes(packing, outputs, inputs):
            _check_zeros(name, tensors, packing, {"I8": scale.shape})
            return PackedLayer(name, outputs, inputs, packing)
    raise CorruptModelError(
        f"{shortened(name)} ({tensors[name].dtype}, shape {(outputs, inputs)}) and its "
        f"weight_scale of shape {scale.shape} do not fit {_shown(scheme)}.",
        hint=_FETCH_AGAIN,
    )


def _scale_shapes(packing: Packing, outputs: int, inputs: int) -> tuple[tuple[int, ...], ...]:
    if packing.strategy == "tensor":
        return ((), (1,), (1, 1))
    if packing.strategy == "channel":
        return ((outputs, 1),) if packing.storage == "words" else ((outputs, 1), (outputs,))
    if packing.block is not None:
        return ((-(-outputs // packing.block[0]), -(-inputs // packing.block[1])),)
    return ((outputs, packing.num_groups(inputs)),)


def _check_zeros(
    name: str,
    tensors: Mapping[str, Stored],
    packing: Packing,
    allowed: Mapping[str, tuple[int, ...]],
) -> None:
    zeros_name = f"{name.removesuffix('_packed')}_zero_point"
    if packing.has_zeros:
        _partner(name, zeros_name, tensors)
    zeros = tensors.get(zeros_name)
    if zeros is not None and allowed.get(zeros.dtype) != zeros.shape:
        expected = " or ".join(f"{dtype} {shape}" for dtype, shape in allowed.items())
        raise CorruptModelError(
            f"{shortened(zeros_name)} is {zeros.dtype} {zeros.shape}, expected {expected}.",
            hint=_FETCH_AGAIN,
        )


def _check_order(
    name: str, tensors: Mapping[str, Stored], inputs: int, *, padding: int = 0
) -> None:
    order = tensors.get(name)
    if order is None:
        return
    (length,) = _expect(name, order, *_WORDS, rank=1)
    if not inputs - padding <= length <= inputs:
        raise CorruptModelError(
            f"{shortened(name)} orders {length} inputs, and the weight has {inputs}.",
            hint=_FETCH_AGAIN,
        )


def _check_strangers(
    tensors: Mapping[str, Stored], packed: Mapping[str, str], partners: tuple[str, ...], method: str
) -> None:
    """Nothing packed may be left over; the `scales` of an MLX-packed weight belong to that."""
    for name in tensors:
        stem, dot, last = name.rpartition(".")
        if last == "weight" and packed.get(stem, name) != name:
            raise CorruptModelError(
                f"{shortened(name)} is stored twice, packed and plain.", hint=_FETCH_AGAIN
            )
        weight = tensors.get(f"{stem}.weight")
        is_mlx = last == "scales" and weight is not None and weight.dtype == "U32"
        foreign = dot + last in partners or name.endswith(FOREIGN_SUFFIXES[:-1])
        if foreign and stem not in packed and not is_mlx:
            raise CorruptModelError(
                f"{shortened(name)} belongs to no weight that {method} packed.",
                hint=_FETCH_AGAIN,
            )


def _partner(name: str, wanted: str, tensors: Mapping[str, Stored]) -> Stored:
    if wanted not in tensors:
        raise CorruptModelError(
            f"{shortened(name)} is packed, and {shortened(wanted)} is missing.", hint=_FETCH_AGAIN
        )
    return tensors[wanted]


def _expect(name: str, tensor: Stored, *dtypes: str, rank: int | None = None) -> tuple[int, ...]:
    """The shape of `tensor`, which must have one of `dtypes` and `rank` axes, none empty."""
    shape = tensor.shape
    if tensor.dtype not in dtypes or (rank is not None and len(shape) != rank) or 0 in shape:
        axes = "" if rank is None else f" with {rank} axes"
        raise CorruptModelError(
            f"{shortened(name)} is {tensor.dtype} {shape}, expected {' or '.join(dtypes)}{axes}.",
            hint=_FETCH_AGAIN,
        )
    return shape


def _shown(scheme: PackedScheme) -> str:
    """The packings of a scheme, for messages."""
    return " or ".join(str(packing) for packing in scheme.packings)
