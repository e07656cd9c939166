"""Keys and values of a full-attention layer, or latents and rotary keys of latent attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import mlx.core as mx
from mlx_lm.models.cache import create_attention_mask

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


class RowCache:
    """Bookkeeping of a cache whose rows stay where they were put: forgetting moves a number."""

    kind = "rows"
    is_divisible = True

    def __init__(self, num_buffers: int = 1) -> None:
        self.offset = 0
        self.committed = 0
        self._buffers = [RowBuffer() for _ in range(num_buffers)]

    @property
    def nbytes(self) -> int:
        """Bytes held, spare capacity included."""
        return sum(b.nbytes for b in self._buffers)

    def size(self) -> int:
        """Rows held."""
        return self.offset

    def empty(self) -> bool:
        """Whether no row was ever appended."""
        return self._buffers[0].array is None

    def arm(self) -> None:
        """Nothing to prepare: any number of rows can be kept."""

    def check_commit(self, rows: int) -> None:
        """Raise InternalError when fewer than `rows` are pending."""
        check_rows(self.kind, rows, self.offset - self.committed)

    def commit(self, rows: int) -> None:
        """Keep the first `rows` of the rows appended since the last commit."""
        self.check_commit(rows)
        self.committed += rows
        self.offset = self.committed

    def rollback(self) -> None:
        """Forget every row appended since the last commit."""
        self.commit(0)

    def check(self) -> None:
        """Raise InternalError when the buffers are shorter than the rows they should hold."""
        check_rows(self.kind, self.offset - self.committed, self.offset)
        for buffer in self._buffers:
            check_rows(self.kind, self.offset, buffer.capacity)

    def snapshot(self) -> Snapshot:
        """Copy the committed rows."""
        check_snapshot_allowed(self.kind, self.offset - self.committed)
        arrays = tuple(
            None if b.array is None else frozen(b.view(0, self.offset)) for b in self._buffers
        )
        mx.eval([a for a in arrays if a is not None])
        return Snapshot(self.kind, self.offset, arrays)

    def check_restore(self, snapshot: Snapshot) -> None:
        """Raise InternalError when `snapshot` was taken from another kind of cache."""
        check_restorable(self.kind, snapshot, arrays=len(self._buffers))

    def restore(self, snapshot: Snapshot) -> None:
        """Become what `snapshot` was taken from."""
        self.check_restore(snapshot)
        self.offset = self.committed = snapshot.rows
        for buffer, array in zip(self._buffers, snapshot.arrays, strict=True):
            buffer.array = None if array is None else frozen(array)

    def mark(self, rows: int | None = None) -> Snapshot:
        """The number of rows: they stay where they are."""
        check_snapshot_allowed(self.kind, self.offset - self.committed)
        rows = self.committed if rows is None else rows
        check_mark(self.kind, rows, self.committed)
        return Snapshot(self.kind, rows)

    def cut(self, mark: Snapshot) -> None:
        """Forget the rows behind the mark."""
        check_restorable(self.kind, mark)
        check_mark(self.kind, mark.rows, self.committed)
        self.offset = self.committed = mark.rows

    def fork(self, mark: Snapshot) -> Self:
        """A copy of the rows up to the mark."""
        check_restorable(self.kind, mark)
        check_mark(self.kind, mark.rows, self.committed)
        twin = self._empty()
        twin.offset = twin.committed = mark.rows
        for own, other in zip(self._buffers, twin._buffers, strict=True):
            if own.array is not None and mark.rows:
                other.array = frozen(own.view(0, mark.rows))
        return twin

    def arrays(self) -> Iterator[mx.array]:
        """The arrays held, for `mx.eval`."""
        return (b.array for b in self._buffers if b.array is not None)

    @property
    def state(self) -> list[mx.array]:
        """The arrays held, under mlx-lm's name."""
        return list(self.arrays())

    def make_mask(self, *args: Any, **kwargs: Any) -> Any:
        """The attention mask for the rows about to be appended, as mlx-lm's caches give it."""
        return create_attention_mask(*args, offset=self.offset, **kwargs)

    def _empty(self) -> Self:
        """An empty cache with the same settings."""
        return type(self)()

    def _append(self, *arrays: mx.array) -> None:
        for buffer, rows in zip(self._buffers, arrays, strict=True):
            buffer.write(self.offset, rows)
        self.offset += arrays[0].shape[-2]


class KVCache(RowCache):
    """Keys [B, H, S, Dk] and values [B, H, S, Dv], of equal or different widths."""

    kind = "kv"

    def __init__(self) -> None:
        super().__init__(2)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append rows and return all rows: [B, H, S, Dk], [B, H, S, Dv]."""
        self._append(keys, values)
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """All rows held."""
        keys, values = self._buffers
        return keys.view(0, self.offset), values.view(0, self.offset)
