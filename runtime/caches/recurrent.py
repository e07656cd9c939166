"""Convolution window and state of a recurrent layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import mlx.core as mx

from mtplx.contracts.errors import InternalError
from mtplx.runtime.caches.base import (
    Snapshot,
    check_mark,
    check_restorable,
    check_rows,
    check_snapshot_allowed,
    frozen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Tape(NamedTuple):
    """What is needed to keep part of one append of `rows` rows.

    `window` [B, c - 1 + rows, C] is the convolution input: the rows kept from before, then the new
    ones. `state_after(n)` is the recurrent state after the first n rows.
    """

    rows: int
    window: mx.array
    state_after: Callable[[int], mx.array]


class RecurrentCache:
    """State arrays of one layer, replaced and never written to, so that an older one stays valid.

    mlx-lm's modules read and write them by index and then call `advance`; that allows to keep all
    rows or none. A module that calls `record` lets an armed cache keep any number of rows.
    """

    kind = "recurrent"
    is_divisible = False

    # What mlx-lm's modules look at for padded batches, which this cache doesn't hold.
    lengths = None
    left_padding = None

    def __init__(self, num_arrays: int = 2) -> None:
        self.offset = 0
        self.committed = 0
        self.is_armed = False
        self._arrays: list[mx.array | None] = [None] * num_arrays
        self._committed_arrays = list(self._arrays)
        self._tapes: list[Tape] = []

    def __getitem__(self, index: int) -> mx.array | None:
        return self._arrays[index]

    def __setitem__(self, index: int, value: mx.array) -> None:
        self._arrays[index] = value

    @property
    def nbytes(self) -> int:
        """Bytes of the current arrays."""
        return sum(a.nbytes for a in self._arrays if a is not None)

    def size(self) -> int:
        """Rows seen."""
        return self.offset

    def empty(self) -> bool:
        """Whether no row was ever appended."""
        return self._arrays[0] is None

    def make_mask(self, num_rows: int) -> Any:  # noqa: ARG002
        """No mask: rows are never padding."""
        return None

    def advance(self, num_rows: int) -> None:
        """Count rows whose effect was written by index."""
        self.offset += num_rows

    def record(self, tape: Tape, state: mx.array) -> None:
        """Append `tape.rows` rows; `state` is the one after the last of them."""
        num_kept = tape.window.shape[1] - tape.rows
        self._arrays = [_window_after(tape.window, tape.rows, num_kept), state]
        if self.is_armed:
            self._tapes.append(tape)
        self.offset += tape.rows

    def arm(self) -> None:
        """From here to the next commit, keep what a commit of part of the rows needs."""
        self.is_armed = True

    def check_commit(self, rows: int) -> None:
        """Raise InternalError unless `rows` is none or all that is pending, or on the tape."""
        pending = self.offset - self.committed
        check_rows(self.kind, rows, pending)
        if rows not in (0, pending) and sum(t.rows for t in self._tapes) != pending:
            raise InternalError(
                f"{self.kind}: commit of {rows} of {pending} rows, but no tape of them was kept",
                hint="Arm it before a layer that records, or restore a snapshot and run again.",
            )

    def commit(self, rows: int) -> None:
        """Keep the first `rows` of the rows appended since the last commit."""
        self.check_commit(rows)
        if rows == 0:
            self._arrays = list(self._committed_arrays)
        elif rows < self.offset - self.committed:
            self._arrays = self._arrays_after(rows)
        self._settle(self.committed + rows)

    def rollback(self) -> None:
        """Forget every row appended since the last commit."""
        self.commit(0)

    def check(self) -> None:
        """Raise InternalError when rows were counted without their arrays."""
        check_rows(self.kind, self.offset - self.committed, self.offset)
        if self.offset and any(a is None for a in self._arrays):
            raise InternalError(f"{self.kind}: {self.offset} rows seen, but an array is missing")

    def snapshot(self) -> Snapshot:
        """The current arrays; copies only what is part of a larger buffer."""
        check_snapshot_allowed(self.kind, self.offset - self.committed)
        arrays = tuple(None if a is None else frozen(a) for a in self._arrays)
        mx.eval([a for a in arrays if a is not None])
        return Snapshot(self.kind, self.offset, arrays)

    def check_restore(self, snapshot: Snapshot) -> None:
        """Raise InternalError when `snapshot` was taken from another kind of cache."""
        check_restorable(self.kind, snapshot, arrays=len(self._arrays))

    def restore(self, snapshot: Snapshot) -> None:
        """Become what `snapshot` was taken from."""
        self.check_restore(snapshot)
        self._arrays = list(snapshot.arrays)
        self.offset = snapshot.rows
        self._settle(snapshot.rows)

    def mark(self, rows: int | None = None) -> Snapshot:
        """The current arrays, which nothing writes to; there is none of fewer rows."""
        check_snapshot_allowed(self.kind, self.offset - self.committed)
        if rows not in (None, self.committed):
            raise InternalError(f"{self.kind}: {rows} of {self.committed} rows can't be marked")
        return Snapshot(self.kind, self.committed, tuple(self._arrays))

    def cut(self, mark: Snapshot) -> None:
        """Take the arrays of the mark again."""
        check_mark(self.kind, mark.rows, self.committed)
        self.restore(mark)

    def fork(self, mark: Snapshot) -> Self:
        """A cache that begins with the arrays of the mark."""
        twin = type(self)(len(self._arrays))
        twin.restore(mark)
        return twin

    def arrays(self) -> Iterator[mx.array]:
        """The arrays held, for `mx.eval`."""
        return (a for a in self._arrays if a is not None)

    @property
    def state(self) -> list[mx.array]:
        """The arrays held, under mlx-lm's name."""
        return list(self.arrays())

    def _arrays_after(self, rows: int) -> list[mx.array | None]:
        for tape in self._tapes:
            if rows <= tape.rows:
                num_kept = tape.window.shape[1] - tape.rows
                return [_window_after(tape.window, rows, num_kept), tape.state_after(rows)]
            rows -= tape.rows
        raise InternalError(f"{self.kind}: the tape is {rows} rows short")

    def _settle(self, committed: int) -> None:
        self.offset = self.committed = committed
        self._committed_arrays = list(self._arrays)
        self._tapes.clear()
        self.is_armed = False


def _window_after(window: mx.array, rows: int, num_kept: int) -> mx.array:
    """The last `num_kept` inputs up to new row `rows`, copied so that the others can be freed."""
    return mx.contiguous(window[:, rows : rows + num_kept])
