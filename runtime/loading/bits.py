"""Small integers out of 32-bit words."""

from __future__ import annotations

import mlx.core as mx

_WORD = 32


def unpack_words(words: mx.array, bits: int) -> mx.array:
    """The values of `bits` bits that each row of `words` (int32 or uint32) holds, as uint32.

    A row is one stream of bits, the lowest of the first word first; where 32 is no multiple of
    `bits`, values lie across two words and a row must have a multiple of `bits` words.
    """
    stream = words.view(mx.uint32)
    if _WORD % bits == 0:
        values = stream[..., None] >> mx.arange(0, _WORD, bits, dtype=mx.uint32)
    else:
        values = _across_words(stream, bits)
    return (values & mx.array((1 << bits) - 1, mx.uint32)).reshape(words.shape[0], -1)


def _across_words(stream: mx.array, bits: int) -> mx.array:
    """`bits` words hold 32 values exactly: each from the word it starts in and the next one."""
    starts = [value * bits for value in range(_WORD)]
    first = mx.array([start // _WORD for start in starts])
    second = mx.minimum(first + 1, bits - 1)
    shift = mx.array([start % _WORD for start in starts], mx.uint32)
    unit = stream.reshape(stream.shape[0], -1, bits)
    # A value inside one word takes nothing from the next: a shift by 32 would be undefined.
    spills = shift + bits > _WORD
    rest = unit[..., second] << mx.where(spills, _WORD - shift, 0).astype(mx.uint32)
    return (unit[..., first] >> shift) | mx.where(spills, rest, 0)
