"""GPTQ: `X.qweight`, `X.qzeros`, `X.scales` and `X.g_idx` as plain weights."""

from __future__ import annotations

from collections.abc import Iterable

import mlx.core as mx

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.packed_scheme import PackedScheme
from mtplx.contracts.packed_tensors import PackedLayer
from mtplx.runtime.loading.arrays import Weights
from mtplx.runtime.loading.bits import unpack_words
from mtplx.runtime.loading.groups import dequantize


def unpack_gptq(layer: PackedLayer, weights: Weights, scheme: PackedScheme) -> mx.array:
    """`(q - zero) * scale` of one layer in float32, `[out, in]` (Frantar et al., 2023, GPTQ)."""
    bits = layer.packing.bits
    stored = unpack_words(weights[f"{layer.stem}.qzeros"], bits)  # [groups, out]
    # `zero - 1` was stored modulo 2^bits, so the sum wraps too.
    zeros = (stored + scheme.zero_offset) & ((1 << bits) - 1)
    return dequantize(
        unpack_words(mx.contiguous(weights[layer.name].T), bits),
        zeros.T,
        weights[f"{layer.stem}.scales"].T,
        layer.packing.group_size,
        order=weights.get(f"{layer.stem}.g_idx") if scheme.is_ordered else None,
    )


def check_orders(layers: Iterable[PackedLayer], weights: Weights, scheme: PackedScheme) -> None:
    """Read every `g_idx` and see that it can be followed, or that it need not be.

    Raises:
        CorruptModelError: a group that does not exist, or an order that config.json denies.
    """
    verdicts: dict[str, mx.array] = {}
    for layer in layers:
        name = f"{layer.stem}.g_idx"
        if name not in weights:
            continue
        order, size = weights[name], layer.packing.group_size or layer.inputs
        if scheme.is_ordered:
            verdicts[name] = mx.all((order >= 0) & (order < layer.packing.num_groups(layer.inputs)))
        else:
            verdicts[name] = mx.all(order == mx.arange(layer.inputs) // size)
    mx.eval(verdicts)
    for name, is_right in verdicts.items():
        if not is_right.item():
            raise CorruptModelError(
                f"{name} names groups that the weight does not have"
                if scheme.is_ordered
                else f"{name} mixes the groups, and config.json says desc_act false",
                hint="Fetch the model again, or use the bf16 release of it.",
            )
