"""Weights that another tool packed, as plain ones: the one place where that happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.contracts.packed_scheme import PackedScheme
from mtplx.contracts.packed_tensors import (
    ACTIVATION_SUFFIXES,
    FOREIGN_SUFFIXES,
    PackedLayer,
    check_fp8_blocks,
    packed_layers,
    plain_name,
)
from mtplx.contracts.quantization import fp8_block, packed_scheme
from mtplx.runtime.loading.arrays import Weights
from mtplx.runtime.loading.awq import unpack_awq
from mtplx.runtime.loading.compressed import unpack_compressed, with_true_shapes
from mtplx.runtime.loading.fp8 import dequantize_fp8
from mtplx.runtime.loading.gptq import check_orders, unpack_gptq

# Safetensors names of the types that packed weights come in; MLX reads e4m3 as bytes.
_STORED_TYPES = {
    mx.int32: "I32",
    mx.uint32: "U32",
    mx.int64: "I64",
    mx.int8: "I8",
    mx.uint8: "F8_E4M3",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.float32: "F32",
}
_PARTNERS = {
    "awq": (".qweight", ".qzeros", ".scales"),
    "gptq": (".qweight", ".qzeros", ".scales", ".g_idx"),
    "compressed-tensors": (
        *(".weight_packed", ".weight_scale", ".weight_shape"),
        *(".weight_zero_point", ".weight_g_idx"),
    ),
}


class _Stored(NamedTuple):
    dtype: str
    shape: tuple[int, ...]


def is_packed(weights: Weights) -> bool:
    """Whether any tensor is packed by FP8 blocks, AWQ, GPTQ or compressed-tensors."""
    return any(name.endswith((*FOREIGN_SUFFIXES, "_scale_inv")) for name in weights)


def unpack(weights: Weights, config: Mapping[str, Any], dtype: mx.Dtype) -> Weights:
    """Every packed weight as a plain `X.weight` of `dtype`, all other tensors untouched.

    `config` is that of the model folder. Products are formed in float32; nothing is computed here
    but the small integers that give shapes and order. Scales of activations are left out.

    Raises:
        CorruptModelError: a packed tensor without its partners, or of shapes that do not fit.
        UnsupportedModelError: a packing that config.json does not describe, or mtplx can't read.
    """
    block = fp8_block(config)
    check_fp8_blocks(_stored(weights), block)
    weights = dequantize_fp8(weights, block, dtype)
    scheme = packed_scheme(config)
    if scheme is None:
        _refuse_packed(weights)
        return weights
    layers = _layers(weights, scheme)
    used = {layer.stem + partner for layer in layers for partner in _PARTNERS[scheme.method]}
    plain = {
        name: value
        for name, value in weights.items()
        if name not in used and not name.endswith(ACTIVATION_SUFFIXES)
    }
    for layer in layers:
        plain[plain_name(layer.name)] = _value(layer, weights, scheme).astype(dtype)
    return plain


def _layers(weights: Weights, scheme: PackedScheme) -> list[PackedLayer]:
    tensors = _stored(weights)
    layers = packed_layers(tensors, scheme)
    if scheme.method == "compressed-tensors":
        return with_true_shapes(layers, weights, tensors, scheme)
    check_orders(layers, weights, scheme)
    return layers


def _stored(weights: Weights) -> dict[str, _Stored]:
    return {
        name: _Stored(_STORED_TYPES.get(value.dtype, str(value.dtype)), value.shape)
        for name, value in weights.items()
    }


def _value(layer: PackedLayer, weights: Weights, scheme: PackedScheme) -> mx.array:
    if scheme.method == "awq":
        return unpack_awq(layer, weights)
    if scheme.method == "gptq":
        return unpack_gptq(layer, weights, scheme)
    return unpack_compressed(layer, weights)


def _refuse_packed(weights: Weights) -> None:
    for name in weights:
        if name.endswith(FOREIGN_SUFFIXES):
            raise UnsupportedModelError(
                f"{name} belongs to a packed weight, and config.json does not say how it is packed",
                hint="Restore the quantization_config of config.json, or use the bf16 release.",
            )
