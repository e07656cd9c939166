"""Keys and values of a sliding-window layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask

from mtplx.contracts.errors import InternalError
from mtplx.runtime.caches.base import (
    Snapshot,
    check_mark,
    check_restorable,
    check_rows,
    check_snapshot_allowed,
    frozen,
)
from mtplx.runtime.caches.rows import RowBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator


class RotatingKVCache:
    """The last rows of a layer that attends to `window` rows, its own included.

    Rows lie in temporal order between two pointers of a buffer with slack; when the slack is used
    up, the rows still needed move to a new buffer, so that an append costs O(1) on average. Rows
    are dropped only when no commit can bring them back into the window, so a rollback is exact
    across any number of drops. (mlx-lm's ring overwrites in place: a row it rotated over is lost.)
    """

    kind = "rotating-kv"
    is_divisible = False

    def __init__(self, window: int) -> None:
        self.window = window
        self.offset = 0
        self.committed = 0
        self._start = 0
        self._end = 0
        self._keys = RowBuffer()
        self._values = RowBuffer()

    @property
    def max_size(self) -> int:
        """The window, under mlx-lm's name."""
        return self.window

    @property
    def nbytes(self) -> int:
        """Bytes held, slack included."""
        return self._keys.nbytes + self._values.nbytes

    def size(self) -> int:
        """Rows that the next row could attend to, itself not counted."""
        return min(self.offset, self.window)

    def empty(self) -> bool:
        """Whether no row was ever appended."""
        return self._keys.array is None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append T rows; return them behind the `window - 1` rows before them, [B, H, S, D]."""
        num_new = keys.shape[-2]
        if self._end + num_new > self._keys.capacity:
            self._move(keys, values)
        self._keys.write(self._end, keys)
        self._values.write(self._end, values)
        first = self._first_before(self._end)
        self._end += num_new
        self.offset += num_new
        return self._keys.view(first, self._end), self._values.view(first, self._end)

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """The rows of the current window."""
        first = max(self._start, self._end - self.window)
        return self._keys.view(first, self._end), self._values.view(first, self._end)

    def make_mask(
        self, num_rows: int, window_size: int | None = None, return_array: bool = False
    ) -> Any:
        """The mask of T rows about to be appended over what `update_and_fetch` will return."""
        before = min(self.offset, self.window - 1)
        window = min(window_size or self.window, self.window)
        if num_rows == 1 and window > before:
            return None
        if before + num_rows > window or return_array:
            return create_causal_mask(num_rows, before, window_size=window)
        return "causal"

    def arm(self) -> None:
        """Nothing to prepare: any number of rows can be kept."""

    def check_commit(self, rows: int) -> None:
        """Raise InternalError when fewer than `rows` are pending."""
        check_rows(self.kind, rows, self.offset - self.committed)

    def commit(self, rows: int) -> None:
        """Keep the first `rows` of the rows appended since the last commit."""
        self.check_commit(rows)
        self._end -= self.offset - self.committed - rows
        self.committed += rows
        self.offset = self.committed

    def rollback(self) -> None:
        """Forget every row appended since the last commit."""
        self.commit(0)

    def check(self) -> None:
        """Raise InternalError when the pointers and counts contradict each other."""
        pending = self.offset - self.committed
        needed = min(self.offset, self.window - 1 + pending)
        held = self._end - self._start
        is_sound = 0 <= pending <= self.offset and needed <= held <= self.offset
        if not is_sound or self._end > min(self._keys.capacity, self._values.capacity):
            raise InternalError(
                f"{self.kind}: {held} rows held in a buffer of {self._keys.capacity}, "
                f"expected at least {needed} (offset {self.offset}, {self.committed} committed)"
            )

    def snapshot(self) -> Snapshot:
        """Copy the rows that later rows can attend to."""
        check_snapshot_allowed(self.kind, self.offset - self.committed)
        if self._keys.array is None:
            return Snapshot(self.kind, self.offset, (None, None))
        first = self._first_before(self._end)
        arrays = tuple(frozen(b.view(first, self._end)) for b in (self._keys, self._values))
        mx.eval(arrays)
        return Snapshot(self.kind, self.offset, arrays)

    def check_restore(self, snapshot: Snapshot) -> None:
        """Raise InternalError when `snapshot` was taken from another kind of cache."""
        check_restorable(self.kind, snapshot, arrays=2)

    def restore(self, snapshot: Snapshot) -> None:
        """Become what `snapshot` was taken from."""
        self.check_restore(snapshot)
        keys, values = snapshot.arrays
        self.offset = self.committed = snapshot.rows
        self._start = 0
        self._end = 0 if keys is None else keys.shape[-2]
        self._keys.array = None if keys is None else frozen(keys)
        self._values.array = None if values is None else frozen(values)

    def mark(self, rows: int | None = None) -> Snapshot:
        """A copy of the window, whose rows are dropped later; there is none of fewer rows."""
        if rows not in (None, self.committed):
            raise InternalError(f"{self.kind}: {rows} of {self.committed} rows can't be marked")
        return self.snapshot()

    def cut(self, mark: Snapshot) -> None:
        """Take the window of the mark again."""
        check_mark(self.kind, mark.rows, self.committed)
        self.restore(mark)

    def fork(self, mark: Snapshot) -> Self:
        """A cache that begins with the window of the mark."""
        twin = type(self)(self.window)
        twin.restore(mark)
        return twin

    def arrays(self) -> Iterator[mx.array]:
        """The arrays held, for `mx.eval`."""
        return (b.array for b in (self._keys, self._values) if b.array is not None)

    @property
    def state(self) -> list[mx.array]:
        """The arrays held, under mlx-lm's name."""
        return list(self.arrays())

    def _first_before(self, row: int) -> int:
        """Buffer index of the oldest row that the row at index `row` attends to."""
        return max(self._start, row - (self.window - 1))

    def _move(self, keys: mx.array, values: mx.array) -> None:
        """New buffers from the oldest row that a commit can still need, with room for the new."""
        first = self._first_before(self._end - (self.offset - self.committed))
        needed = self._end - first + keys.shape[-2]
        self._keys.reserve(self._end, needed, keys, first=first)
        self._values.reserve(self._end, needed, values, first=first)
        self._start, self._end = 0, self._end - first
