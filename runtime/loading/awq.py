"""AWQ: `X.qweight`, `X.qzeros` and `X.scales` of AutoAWQ's GEMM layout as plain weights."""

from __future__ import annotations

import mlx.core as mx

from mtplx.contracts.packed_tensors import PackedLayer
from mtplx.runtime.loading.arrays import Weights
from mtplx.runtime.loading.groups import dequantize

# AutoAWQ stores columns 0, 2, 4, 6, 1, 3, 5, 7 of each eight from the lowest four bits up
# (casper-hansen/AutoAWQ, `WQLinear_GEMM`); these are the lowest bits of columns 0 to 7.
_SHIFTS = (0, 16, 4, 20, 8, 24, 12, 28)


def unpack_awq(layer: PackedLayer, weights: Weights) -> mx.array:
    """`(q - zero) * scale` of one layer in float32, `[out, in]`."""
    return dequantize(
        _columns(weights[layer.name]),
        _columns(weights[f"{layer.stem}.qzeros"]),
        weights[f"{layer.stem}.scales"].T,
        layer.packing.group_size,
    )


def _columns(words: mx.array) -> mx.array:
    """`[rows, out / 8]` words as `[out, rows]` values."""
    # Words are turned rather than values, of which there are eight times as many.
    stream = mx.contiguous(words.view(mx.uint32).T)
    values = stream[:, None] >> mx.array(_SHIFTS, mx.uint32)[:, None]
    return (values & mx.array(15, mx.uint32)).reshape(-1, words.shape[0])
