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
from mtplx.runtime.loading.bits import unpack_words
from mtplx.runtime.loading.groups import dequantize, dequantize_blocks


def unpack_compressed(layer: PackedLayer, weights: Weights) -> mx.array:
    """`(q - zero) * scale` of one layer in float32, `[out, in]`."""
    if layer.packing.storage == "words":
        return _from_words(layer, weights)
    values, scales = weights[layer.name], weights[f"{layer.name}_scale"]
    if layer.packing.storage == "fp8":
        values = mx.from_fp8(values, dtype=mx.float32)
    if layer.packing.block is not None:
        return dequantize_blocks(values, scales, layer.packing.block)
    zeros = weights.get(f"{layer.name}_zero_point")
    return dequantize(
        values,
        None if zeros is None else _per_group(zeros, layer),
        _per_group(scales, layer),
        layer.packing.group_size,
    )


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
    offset, scales = 1 << (bits - 1), weights[f"{layer.stem}.weight_scale"]
    zeros = weights.get(f"{stem}_zero_point")
    if zeros is None:
        zeros = mx.full(scales.shape, offset)
    elif zeros.dtype == mx.int8:
        # Early versions of the format left zero points one a byte, signed.
        zeros = zeros.astype(mx.int32) + offset
    else:
        zeros = unpack_words(mx.contiguous(zeros.T), bits)[:, : layer.outputs].T
    return dequantize(
        unpack_words(weights[layer.name], bits)[:, : layer.inputs],
        zeros,
        scales,
        layer.packing.group_size,
        order=_order(weights.get(f"{stem}_g_idx"), layer),
    )


def _order(stored: mx.array | None, layer: PackedLayer) -> mx.array | None:
    """The group of each input; -1 is stored where nothing was reordered."""
    if stored is None or layer.packing.group_size is None:
        return None
    lowest: Any = stored.min().item()
    return stored if lowest >= 0 else None


def _per_group(values: mx.array, layer: PackedLayer) -> mx.array:
    """Scales or zero points as `[out, groups]`; one row where the whole tensor has one."""
    if layer.packing.strategy == "group":
        return values
    return values.reshape(-1, 1)


def _mismatch(fault: str) -> CorruptModelError:
    return CorruptModelError(
        f"{fault}.", hint="Fetch the model again, or use the bf16 release of it."
    )
