"""FP8 block checkpoints: `X.weight` (e4m3) with `X.weight_scale_inv`, one scale for each block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.runtime.loading.arrays import Weights

_SUFFIX = "_scale_inv"
_DEFAULT_BLOCK = (128, 128)


def has_fp8(weights: Weights) -> bool:
    """Whether any tensor comes with FP8 block scales."""
    return any(name.endswith(_SUFFIX) for name in weights)


def block_shape(config: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and columns of one block: `quantization_config.weight_block_size`, 128 x 128 when absent.

    Raises:
        UnsupportedModelError: it is not a pair of positive integers.
    """
    section = config.get("quantization_config") or {}
    found = section.get("weight_block_size") if isinstance(section, Mapping) else None
    if found is None:
        return _DEFAULT_BLOCK
    if not (
        isinstance(found, Sequence)
        and len(found) == 2
        and all(isinstance(n, int) and n > 0 for n in found)
    ):
        raise UnsupportedModelError(
            f"config.json: quantization_config.weight_block_size is {found!r}, "
            "expected two positive integers such as [128, 128]"
        )
    return found[0], found[1]


def dequantize_fp8(weights: Weights, block: tuple[int, int], dtype: mx.Dtype) -> Weights:
    """Every scaled FP8 weight as `dtype`; the scales are consumed, all other tensors stay.

    The product is formed in float32. Layout: deepseek-ai/DeepSeek-V3 `README_WEIGHTS.md`.

    Raises:
        CorruptModelError: scales without their weight, or of another shape than the blocks need.
    """
    out = {name: value for name, value in weights.items() if not name.endswith(_SUFFIX)}
    for name, scale in weights.items():
        if not name.endswith(_SUFFIX):
            continue
        target = name.removesuffix(_SUFFIX)
        if target not in out:
            raise CorruptModelError(f"{name} has no weight {target} beside it")
        out[target] = _dequantize(target, out[target], scale, block).astype(dtype)
    return out


def _dequantize(name: str, weight: mx.array, scale: mx.array, block: tuple[int, int]) -> mx.array:
    rows, columns = weight.shape
    expected = (-(-rows // block[0]), -(-columns // block[1]))
    if scale.shape != expected:
        raise CorruptModelError(
            f"{name}: scales of shape {scale.shape}, expected {expected} for blocks of {block}"
        )
    scale = scale.astype(mx.float32)
    values = mx.from_fp8(weight, dtype=mx.float32)
    full = mx.repeat(mx.repeat(scale, block[0], axis=0)[:rows], block[1], axis=1)[:, :columns]
    return values * full
