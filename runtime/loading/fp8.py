"""FP8 block checkpoints: `X.weight` (e4m3) with `X.weight_scale_inv`, one scale for each block."""

from __future__ import annotations

import mlx.core as mx

from mtplx.runtime.loading.arrays import Weights
from mtplx.runtime.loading.groups import dequantize_blocks

_SUFFIX = "_scale_inv"


def dequantize_fp8(weights: Weights, block: tuple[int, int], dtype: mx.Dtype) -> Weights:
    """Every scaled FP8 weight as `dtype`; the scales are consumed, all other tensors stay.

    The product is formed in float32. Shapes must fit (`packed_tensors.check_fp8_blocks`).
    Layout: deepseek-ai/DeepSeek-V3 `README_WEIGHTS.md`.
    """
    out = {name: value for name, value in weights.items() if not name.endswith(_SUFFIX)}
    for name, scale in weights.items():
        if name.endswith(_SUFFIX):
            target = name.removesuffix(_SUFFIX)
            values = mx.from_fp8(out[target], dtype=mx.float32)
            out[target] = dequantize_blocks(values, scale, block).astype(dtype)
    return out
