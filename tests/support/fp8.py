"""FP8 block quantisation (e4m3, 128 x 128) as the published FP8 checkpoints store it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 128
LARGEST = 448.0

QUANTIZATION_CONFIG = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [BLOCK, BLOCK],
}


def _positive_values() -> NDArray[np.float32]:
    """The 127 finite non-negative e4m3 values, by code."""
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal).astype(np.float32)


VALUES = _positive_values()


def _to_codes(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Nearest e4m3 code of each value; magnitudes must not exceed 448."""
    middles = (VALUES[1:] + VALUES[:-1]) / 2
    codes = np.searchsorted(middles, np.abs(values)).astype(np.uint8)
    return codes | np.where(np.signbit(values), 0x80, 0).astype(np.uint8)


def from_codes(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The float32 values of e4m3 codes (no code of ours is a NaN)."""
    return np.asarray(np.where(codes & 0x80, -VALUES[codes & 0x7F], VALUES[codes & 0x7F]))


def _spread(scales: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """One scale for each element of a matrix of ``shape``."""
    wide = np.repeat(np.repeat(scales, BLOCK, axis=0), BLOCK, axis=1)
    return np.asarray(wide[: shape[0], : shape[1]])


def quantize(weight: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Codes ``[out, in]`` and ``weight_scale_inv [ceil(out/128), ceil(in/128)]``."""
    rows, columns = (-(-n // BLOCK) for n in weight.shape)
    padded = np.zeros((rows * BLOCK, columns * BLOCK), np.float32)
    padded[: weight.shape[0], : weight.shape[1]] = np.abs(weight)
    largest = padded.reshape(rows, BLOCK, columns, BLOCK).max(axis=(1, 3))
    scales = (np.maximum(largest, 1e-6) / LARGEST).astype(np.float32)
    scaled = np.clip(weight / _spread(scales, weight.shape), -LARGEST, LARGEST)
    return _to_codes(scaled), scales


def dequantize(codes: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """``value * scale`` of each element, in float32."""
    return np.asarray(from_codes(codes) * _spread(scales, codes.shape))
