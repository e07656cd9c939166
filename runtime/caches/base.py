"""What every cache of a layer can do: take rows, then keep the first few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import mlx.core as mx

from mtplx.contracts.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Snapshot(NamedTuple):
    """The committed content of one cache, sharing nothing that later appends write to.

    A cache made of others puts their snapshots into `parts`.
    """

    kind: str
    rows: int
    arrays: tuple[mx.array | None, ...] = ()
    parts: tuple[Snapshot, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        own = sum(a.nbytes for a in self.arrays if a is not None)
        return own + sum(part.nbytes for part in self.parts)


class Cache(Protocol):
    """State of one layer: committed rows, then rows appended since the last commit.

    `commit` makes the first rows appended since the last commit final and forgets the others;
    `rollback` forgets them all. A recurrent layer can be kept in part only for rows appended after
    `arm`.
    """

    @property
    def offset(self) -> int:
        """Rows appended so far and not forgotten: the position of the next row."""

    @property
    def committed(self) -> int:
        """Rows that are final."""

    @property
    def nbytes(self) -> int:
        """Bytes held, spare capacity included."""

    @property
    def is_divisible(self) -> bool:
        """Whether the cache can return to any number of committed rows, marked or not."""

    def arm(self) -> None:
        """From here to the next commit, keep what a commit of part of the rows needs."""

    def check_commit(self, rows: int) -> None:
        """Raise InternalError when `commit(rows)` would; changes nothing."""

    def commit(self, rows: int) -> None:
        """Keep the first `rows` of the rows appended since the last commit."""

    def rollback(self) -> None:
        """Forget every row appended since the last commit."""

    def check(self) -> None:
        """Raise InternalError when the cache contradicts itself."""

    def snapshot(self) -> Snapshot:
        """Copy the committed content; needs all rows to be committed."""

    def check_restore(self, snapshot: Snapshot) -> None:
        """Raise InternalError when `restore(snapshot)` would; changes nothing."""

    def restore(self, snapshot: Snapshot) -> None:
        """Become what `snapshot` was taken from, whatever happened since."""

    def mark(self, rows: int | None = None) -> Snapshot:
        """A point that this cache can be cut to, after `rows` rows or all; copies only what appends replace.

        Needs all rows to be committed. Fewer rows than all need a divisible cache.
        """

    def cut(self, mark: Snapshot) -> None:
        """Return to a mark of this cache, the rows behind it are forgotten; marks behind it become invalid."""

    def fork(self, mark: Snapshot) -> Self:
        """Another cache, as this one was at the mark; neither sees what the other does later."""

    def arrays(self) -> Iterator[mx.array]:
        """The arrays held, for `mx.eval`."""


def check_rows(kind: str, rows: int, pending: int) -> None:
    """Raise InternalError unless `rows` of `pending` uncommitted rows can be kept."""
    if not 0 <= rows <= pending:
        raise InternalError(
            f"{kind}: commit of {rows} rows, but {pending} were appended since the last commit"
        )


def check_snapshot_allowed(kind: str, pending: int) -> None:
    """Raise InternalError when rows are neither committed nor rolled back."""
    if pending:
        raise InternalError(f"{kind}: snapshot while {pending} rows are not committed")


def check_mark(kind: str, rows: int, committed: int) -> None:
    """Raise InternalError unless `rows` lie within the committed ones."""
    if not 0 <= rows <= committed:
        raise InternalError(f"{kind}: {rows} rows can't be marked, {committed} are committed")


def check_restorable(kind: str, snapshot: Snapshot, *, arrays: int = 0, parts: int = 0) -> None:
    """Raise InternalError unless `snapshot` was taken from a cache of this kind and make-up."""
    found = (snapshot.kind, len(snapshot.arrays), len(snapshot.parts))
    if found != (kind, arrays, parts):
        raise InternalError(f"{kind}: can't restore a snapshot of {found}, made by another cache")


def frozen(array: mx.array) -> mx.array:
    """A copy of a slice that does not keep the sliced buffer alive.

    Python-level slice assignment changes the array object it is applied to, so a snapshot may hold
    no object that a cache still writes to.
    """
    return mx.contiguous(array)
