"""Quantised keys and values of a full-attention layer."""

from __future__ import annotations

from typing import Self

import mlx.core as mx

from mtplx.contracts.errors import InvalidRequestError, UnsupportedModelError
from mtplx.runtime.caches.kv import RowCache

KV_BITS = (2, 3, 4, 5, 6, 8)
KV_GROUP_SIZES = (32, 64, 128)

Quantized = tuple[mx.array, mx.array, mx.array]


class QuantizedKVCache(RowCache):
    """Keys and values as (packed, scales, biases), one row a token.

    Groups run along the head dimension, so forgetting rows never cuts one: the kept rows are bit
    for bit what they would be had the others never been appended.
    """

    kind = "quantized-kv"

    def __init__(self, *, bits: int = 8, group_size: int = 64) -> None:
        if bits not in KV_BITS:
            raise InvalidRequestError(
                f"kv_bits is {bits}, expected one of {', '.join(map(str, KV_BITS))}", key="kv_bits"
            )
        if group_size not in KV_GROUP_SIZES:
            raise InvalidRequestError(
                f"kv_group_size is {group_size}, expected one of "
                f"{', '.join(map(str, KV_GROUP_SIZES))}",
                key="kv_group_size",
            )
        super().__init__(6)
        self.bits = bits
        self.group_size = group_size

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Quantized, Quantized]:
        """Quantise and append rows [B, H, T, D]; return all rows held."""
        for rows in (keys, values):
            if rows.shape[-1] % self.group_size:
                raise UnsupportedModelError(
                    f"a head dimension of {rows.shape[-1]} can't be quantised in groups of "
                    f"{self.group_size}",
                    hint="Use a kv_group_size that divides it, or no kv_bits.",
                )
        self._append(*self._quantize(keys), *self._quantize(values))
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Quantized, Quantized]:
        """All rows held, as mlx-lm's quantised attention reads them."""
        a, b, c, d, e, f = (buffer.view(0, self.offset) for buffer in self._buffers)
        return (a, b, c), (d, e, f)

    def _empty(self) -> Self:
        return type(self)(bits=self.bits, group_size=self.group_size)

    def _quantize(self, rows: mx.array) -> Quantized:
        packed, scales, biases = mx.quantize(rows, group_size=self.group_size, bits=self.bits)
        return packed, scales, biases
