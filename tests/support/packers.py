"""AWQ, GPTQ and compressed-tensors packs made bit by bit in numpy, and the values they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import fp8
from tests.support.tensorfile import Tensor, encode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Codes:
    """A quantised matrix: `codes [out, in]` below `2^bits`, `zeros` and `scales [out, groups]`,
    and the group of each input.
    """

    bits: int
    codes: Ints
    zeros: Ints
    scales: Floats
    group_of: Ints

    @property
    def truth(self) -> Floats:
        """`(code - zero) * scale`, `[out, in]`."""
        distance = (self.codes - self.zeros[:, self.group_of]).astype(np.float32)
        return np.asarray(distance * self.scales[:, self.group_of])


def groups(inputs: int, size: int, rng: np.random.Generator | None = None) -> Ints:
    """The group of each input; with `rng` the inputs are shuffled over the groups (desc_act)."""
    ordered = np.arange(inputs) // size
    return ordered if rng is None else rng.permutation(ordered)


def random_codes(
    outputs: int, bits: int, group_of: Ints, *, symmetric: bool = False, seed: int = 0
) -> Codes:
    """Codes, zero points and half-precision scales of every value that is possible."""
    rng = np.random.default_rng(seed)
    top, count = 1 << bits, int(group_of.max()) + 1
    drawn = rng.integers(0, top, (outputs, count))
    return Codes(
        bits=bits,
        codes=rng.integers(0, top, (outputs, len(group_of))),
        zeros=np.full_like(drawn, top // 2) if symmetric else drawn,
        scales=rng.uniform(0.001, 0.1, (outputs, count)).astype(np.float16).astype(np.float32),
        group_of=group_of,
    )


def quantize(weight: Floats, bits: int, group_of: Ints) -> Codes:
    """The nearest codes of a weight, each group from its lowest to its highest value."""
    top, count = (1 << bits) - 1, int(group_of.max()) + 1
    members = [weight[:, group_of == group] for group in range(count)]
    lowest = np.stack([np.minimum(m.min(axis=1), 0) for m in members], axis=1)
    highest = np.stack([np.maximum(m.max(axis=1), 0) for m in members], axis=1)
    scales = np.maximum((highest - lowest) / top, 1e-4).astype(np.float16).astype(np.float32)
    zeros = np.clip(np.round(-lowest / scales), 0, top).astype(np.int64)
    codes = np.round(weight / scales[:, group_of]).astype(np.int64) + zeros[:, group_of]
    return Codes(bits, np.clip(codes, 0, top), zeros, scales, group_of)


def words(values: Ints, bits: int) -> Tensor:
    """Each row as one stream of bits, lowest first, in 32-bit words padded with zeros."""
    stream = np.unpackbits(values.astype(np.uint8)[..., None], axis=-1, bitorder="little")
    stream = stream[..., :bits].reshape(len(values), -1)
    padded = np.pad(stream, ((0, 0), (0, -stream.shape[1] % 32)))
    packed = np.packbits(padded, axis=1, bitorder="little").view("<i4")
    return integers(packed, "I32")


def word_columns(values: Ints, bits: int) -> Tensor:
    """`words` along the columns of a matrix."""
    rows = words(values.T, bits)
    packed = np.frombuffer(rows.data, "<i4").reshape(rows.shape)
    return integers(packed.T, "I32")


def integers(values: NDArray[Any], dtype: str) -> Tensor:
    """Integers stored as `dtype`."""
    kinds = {"I8": "i1", "I32": "<i4", "I64": "<i8"}
    return Tensor(dtype, values.shape, np.ascontiguousarray(values).astype(kinds[dtype]).tobytes())


def store_awq(stem: str, packed: Codes) -> dict[str, Tensor]:
    """AutoAWQ's GEMM layout."""
    return {
        f"{stem}.qweight": words(_interleaved(packed.codes.T), 4),
        f"{stem}.qzeros": words(_interleaved(packed.zeros.T), 4),
        f"{stem}.scales": encode(packed.scales.T, "F16"),
    }


def store_gptq(
    stem: str, packed: Codes, *, zero_offset: int = 1, with_order: bool = True
) -> dict[str, Tensor]:
    """GPTQ's layout: version 1 stores zero points minus one, version 2 (`zero_offset=0`) as such."""
    zeros = (packed.zeros - zero_offset) % (1 << packed.bits)
    stored = {
        f"{stem}.qweight": word_columns(packed.codes.T, packed.bits),
        f"{stem}.qzeros": words(zeros.T, packed.bits),
        f"{stem}.scales": encode(packed.scales.T, "F16"),
    }
    if with_order:
        stored[f"{stem}.g_idx"] = integers(packed.group_of, "I32")
    return stored


def store_compressed(
    stem: str, packed: Codes, *, with_zeros: bool = True, with_order: bool = False
) -> dict[str, Tensor]:
    """The pack-quantized format: unsigned codes are the signed ones plus half of the range."""
    stored = {
        f"{stem}.weight_packed": words(packed.codes, packed.bits),
        f"{stem}.weight_scale": encode(packed.scales, "BF16" if _fits_bf16(packed) else "F32"),
        f"{stem}.weight_shape": integers(np.array(packed.codes.shape), "I64"),
    }
    if with_zeros:
        stored[f"{stem}.weight_zero_point"] = word_columns(packed.zeros, packed.bits)
    if with_order:
        stored[f"{stem}.weight_g_idx"] = integers(packed.group_of, "I32")
    return stored


def store_int8(stem: str, packed: Codes, *, with_zeros: bool = True) -> dict[str, Tensor]:
    """The int-quantized format: signed codes, one a byte."""
    half = 1 << (packed.bits - 1)
    stored = {
        f"{stem}.weight": integers(packed.codes - half, "I8"),
        f"{stem}.weight_scale": encode(packed.scales, "F32"),
    }
    if with_zeros:
        stored[f"{stem}.weight_zero_point"] = integers(packed.zeros - half, "I8")
    return stored


def random_fp8(
    stem: str, shape: tuple[int, int], scale_shape: tuple[int, ...], *, seed: int = 0
) -> tuple[dict[str, Tensor], Floats, Floats]:
    """The float-quantized format: tensors, the unscaled values and the scales."""
    rng = np.random.default_rng(seed)
    codes = (rng.integers(0, 127, shape) | (rng.integers(0, 2, shape) << 7)).astype(np.uint8)
    scales = rng.uniform(0.001, 0.1, scale_shape).astype(np.float32)
    stored = {
        f"{stem}.weight": encode(codes, "F8_E4M3"),
        f"{stem}.weight_scale": encode(scales, "F32"),
    }
    return stored, fp8.from_codes(codes), scales


def _interleaved(values: Ints) -> Ints:
    """Columns of each eight in AWQ's order."""
    eights = values.reshape(len(values), -1, 8)
    return eights[..., list(AWQ_ORDER)].reshape(len(values), -1)


def _fits_bf16(packed: Codes) -> bool:
    return bool(np.all((packed.scales.view(np.uint32) & 0xFFFF) == 0))
