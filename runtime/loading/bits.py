"""Small integers out of 32-bit words, and settings of groups spread over what they hold for."""

from __future__ import annotations

import mlx.core as mx

_WORD = 32


def unpack_words(words: mx.array, bits: int, *, axis: int) -> mx.array:
    """The `bits`-wide values that `words` (int32 or uint32) hold along `axis`, as uint32.

    Words are one stream of bits, the lowest of the first word first; where 32 is no multiple of
    `bits`, values lie across two words and `axis` must hold a multiple of `bits` words.
    """
    stream = mx.moveaxis(words.view(mx.uint32), axis, -1)
    mask = mx.array((1 << bits) - 1, mx.uint32)
    if _WORD % bits == 0:
        values = stream[..., None] >> mx.arange(0, _WORD, bits, dtype=mx.uint32)
    else:
        values = _across_words(stream, bits)
    flat = (values & mask).reshape(*stream.shape[:-1], -1)
    return mx.moveaxis(flat, -1, axis)


def _across_words(stream: mx.array, bits: int) -> mx.array:
    """`bits` words hold 32 values exactly: each from the word it starts in and the next one."""
    starts = [value * bits for value in range(_WORD)]
    first = mx.array([start // _WORD for start in starts])
    second = mx.minimum(first + 1, bits - 1)
    shift = mx.array([start % _WORD for start in starts], mx.uint32)
    unit = stream.reshape(*stream.shape[:-1], -1, bits)
    # A value inside one word takes nothing from the next: a shift by 32 would be undefined.
    spills = shift + bits > _WORD
    rest = unit[..., second] << mx.where(spills, _WORD - shift, 0).astype(mx.uint32)
    return (unit[..., first] >> shift) | mx.where(spills, rest, 0)


def spread(values: mx.array, group_size: int | None, length: int, *, axis: int) -> mx.array:
    """One entry for each of `length` positions along `axis`, each of `values` for `group_size`.

    Without a group size `values` has one entry there, which broadcasting spreads.
    """
    if group_size is None:
        return values
    spread_out = mx.repeat(values, group_size, axis=axis)
    return spread_out[:length] if axis == 0 else spread_out[:, :length]
