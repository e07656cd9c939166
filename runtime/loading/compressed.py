"""compressed-tensors: packed words, int8 and e4m3 weights with their scales as plain weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.packed_scheme import PackedScheme
from mtplx.contracts.packed_tensors import PackedLayer, Stored, words_packing
from mtplx.runtime.loading.arrays import Weights
from mtplx.runtime.loading.bits import spread, unpack_words


def unpack_compressed(layer: PackedLayer, weights: Weights) -> mx.array:
    """`(q - zero) * scale` of one layer in float32, `[out, in]`."""
    if layer.packing.storage == "words":
        return _from_words(layer, weights)
    values = weights[layer.name]
    is_fp8 = layer.packing.storage == "fp8"
    values = mx.from_fp8(values, dtype=mx.float32) if is_fp8 else values.astype(mx.float32)
    zeros = weights.get(f"{layer.name}_zero_point")
    if zeros is not None:
        values = values - _over_weight(zeros, layer)
    return values * _over_weight(weights[f"{layer.name}_scale"], layer)


def with_true_shapes(
    layers: Iterable[PackedLayer],
    weights: Weights,
    tensors: Mapping[str, Stored],
    scheme: PackedScheme,
) -> list[PackedLayer]:
    """The layers with the inputs that `weight_shape` tells, without the padding of the words.

    Reads every `weight_shape` and `weight_g_idx`, the only values that shapes and order depend on.

    Raises:
        CorruptModelError: they do not fit the words and scales.
    """
    layers = list(layers)
    mx.eval([w for name, w in weights.items() if name.endswith((".weight_shape", ".weight_g_idx"))])
    return [
        _true_shape(layer, weights, tensors, scheme) if layer.packing.storage == "words" else layer
        for layer in layers
    ]


def _true_shape(
    layer: PackedLayer, weights: Weights, tensors: Mapping[str, Stored], scheme: PackedScheme
) -> PackedLayer:
    stem = f"{layer.stem}.weight"
    shape: Any = weights[f"{stem}_shape"].tolist()
    if len(shape) != 2 or shape[0] != layer.outputs:
        raise _mismatch(f"{stem}_shape holds {shape}, and {layer.name} has {layer.outputs} rows")
    inputs: int = shape[1]
    packing = words_packing(layer.name, tensors, scheme, inputs)
    order = weights.get(f"{stem}_g_idx")
    if order is not None:
        highest: Any = order.max().item()
        if order.shape != (inputs,) or highest >= packing.num_groups(inputs):
            raise _mismatch(
                f"{stem}_g_idx orders {order.shape[0]} inputs into groups up to {highest}, and the "
                f"weight has {inputs} in {packing.num_groups(inputs)} groups"
            )
    return replace(layer, inputs=inputs, packing=packing)


def _from_words(layer: PackedLayer, weights: Weights) -> mx.array:
    """Words hold `q + 2^(bits - 1)`, and so do those of the zero points, along the outputs."""
    stem, bits = f"{layer.stem}.weight", layer.packing.bits
    offset = 1 << (bits - 1)
    values = unpack_words(weights[layer.name], bits, axis=1)[:, : layer.inputs]
    signed = values.astype(mx.float32) - offset
    order = _order(weights.get(f"{stem}_g_idx"), layer)
    zeros = weights.get(f"{stem}_zero_point")
    if zeros is not None:
        if zeros.dtype != mx.int8:
            zeros = unpack_words(zeros, bits, axis=0)[: layer.outputs].astype(mx.float32) - offset
        signed = signed - _over_weight(zeros, layer, order)
    return signed * _over_weight(weights[f"{stem}_scale"], layer, order)


def _order(stored: mx.array | None, layer: PackedLayer) -> mx.array | None:
    """The group of each input; -1 is stored where nothing was reordered."""
    if stored is None or layer.packing.group_size is None:
        return None
    lowest: Any = stored.min().item()
    return stored if lowest >= 0 else None


def _over_weight(values: mx.array, layer: PackedLayer, order: mx.array | None = None) -> mx.array:
    """Scales or zero points in float32, in a shape that broadcasts to `[out, in]`."""
    values, packing = values.astype(mx.float32), layer.packing
    if packing.strategy == "tensor":
        return values.reshape(1, 1)
    if packing.strategy == "channel":
        return values.reshape(-1, 1)
    if order is not None:
        return values[:, order]
    if packing.block is not None:
        rows, columns = packing.block
        values = spread(values, rows, layer.outputs, axis=0)
        return spread(values, columns, layer.inputs, axis=1)
    return spread(values, packing.group_size, layer.inputs, axis=1)


def _mismatch(fault: str) -> CorruptModelError:
    return CorruptModelError(
        f"{fault}.", hint="Fetch the model again, or use the bf16 release of it."
    )
