"""AWQ: `X.qweight`, `X.qzeros` and `X.scales` of AutoAWQ's GEMM layout as plain weights."""

from __future__ import annotations

import mlx.core as mx

from mtplx.contracts.packed_tensors import PackedLayer
from mtplx.runtime.loading.arrays import Weights
from mtplx.runtime.loading.bits import spread, unpack_words

# AutoAWQ stores columns 0, 2, 4, 6, 1, 3, 5, 7 of each eight from the lowest four bits up
# (casper-hansen/AutoAWQ, `WQLinear_GEMM`); these are the places of columns 0 to 7.
_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


def unpack_awq(layer: PackedLayer, weights: Weights) -> mx.array:
    """`(q - zero) * scale` of one layer in float32, `[out, in]`."""
    values = _columns(weights[layer.name], layer.packing.bits)  # [in, out]
    zeros = _columns(weights[f"{layer.stem}.qzeros"], layer.packing.bits)  # [groups, out]
    scales = weights[f"{layer.stem}.scales"].astype(mx.float32)
    size = layer.packing.group_size
    zeros = spread(zeros.astype(mx.float32), size, layer.inputs, axis=0)
    scales = spread(scales, size, layer.inputs, axis=0)
    return ((values.astype(mx.float32) - zeros) * scales).T


def _columns(words: mx.array, bits: int) -> mx.array:
    """`[rows, out / 8]` words as `[rows, out]` values in the order of the outputs."""
    stored = unpack_words(words, bits, axis=1).reshape(words.shape[0], -1, len(_PLACES))
    return stored[..., mx.array(_PLACES)].reshape(words.shape[0], -1)
