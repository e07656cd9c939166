"""A growable array of rows, written in place."""

from __future__ import annotations

import mlx.core as mx

_STEP = 256


class RowBuffer:
    """Rows along axis -2 of an array [..., capacity, D], with spare capacity behind them.

    Capacity grows by half of the rows held, at least one step, so that appending a row costs O(1)
    on average at any context length.
    """

    def __init__(self) -> None:
        self.array: mx.array | None = None

    @property
    def capacity(self) -> int:
        """Rows that fit without a copy."""
        return 0 if self.array is None else self.array.shape[-2]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer, spare capacity included."""
        return 0 if self.array is None else self.array.nbytes

    def write(self, start: int, rows: mx.array) -> None:
        """Put `rows` [..., T, D] at row `start`, which is at most the number of rows in use."""
        end = start + rows.shape[-2]
        if end > self.capacity:
            self.reserve(start, end, rows)
        assert self.array is not None
        self.array[..., start:end, :] = rows

    def reserve(self, used: int, needed: int, like: mx.array, *, first: int = 0) -> None:
        """Move rows `first` to `used` to a new buffer that fits `needed` rows shaped as `like`."""
        capacity = -(-(needed + max(needed // 2, 1)) // _STEP) * _STEP
        spare = capacity - (used - first)
        empty = mx.zeros((*like.shape[:-2], spare, like.shape[-1]), like.dtype)
        if self.array is None or used == first:
            self.array = empty
        else:
            self.array = mx.concatenate([self.array[..., first:used, :], empty], axis=-2)

    def view(self, start: int, stop: int) -> mx.array:
        """Rows `start` to `stop`, [..., stop - start, D]."""
        assert self.array is not None
        return self.array[..., start:stop, :]
