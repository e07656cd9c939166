"""The state of one sequence between rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import InternalError
from mtplx.runtime.caches.base import Snapshot as CacheSnapshot
from mtplx.runtime.caches.composite import CacheSet


class Mark(NamedTuple):
    """A point that one state can be cut to or forked at: the first `size` tokens, all of them read.

    It keeps only what later rounds replace, so it means nothing without that state.
    """

    size: int
    trunk: CacheSnapshot
    head: CacheSnapshot | None
    unread: tuple[mx.array, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that the mark keeps beside its state."""
        head = 0 if self.head is None else self.head.nbytes
        return self.trunk.nbytes + head + sum(rows.nbytes for rows in self.unread)


class Snapshot(NamedTuple):
    """A point of a sequence that it can return to: the first `size` tokens, all of them read."""

    size: int
    trunk: CacheSnapshot
    head: CacheSnapshot | None
    unread: tuple[mx.array, ...]


@dataclass(slots=True)
class DecodeState:
    """Committed tokens and the caches that hold them.

    `tokens` is the prompt and all that was committed; the trunk's caches hold every token but the last one that
    was sampled. Head row i pairs the trunk's hidden i with token i+1. Rows whose hidden is known and which the head
    has not read yet wait in `unread` ([1, r, H] each); they are read together with the next draft.
    """

    trunk_caches: CacheSet
    head_caches: CacheSet | None
    tokens: list[int] = field(default_factory=list)
    unread: list[mx.array] = field(default_factory=list)

    @property
    def num_unread(self) -> int:
        """Head rows not in the head's cache yet."""
        return sum(rows.shape[1] for rows in self.unread)

    def check(self) -> None:
        """Raise InternalError unless caches, unread rows and tokens agree."""
        self.trunk_caches.check()
        held = self.trunk_caches.committed
        if held not in (len(self.tokens), len(self.tokens) - 1):
            raise InternalError(f"trunk caches hold {held} rows for {len(self.tokens)} tokens")
        if self.head_caches is not None:
            self.head_caches.check()
            rows = self.head_caches.committed + self.num_unread
            if rows != held:
                raise InternalError(f"the head has {rows} rows for {held} of the trunk")

    @property
    def nbytes(self) -> int:
        """Bytes held by caches and unread rows."""
        head = 0 if self.head_caches is None else self.head_caches.nbytes
        return self.trunk_caches.nbytes + head + sum(rows.nbytes for rows in self.unread)

    @property
    def is_divisible(self) -> bool:
        """Whether `mark_at` can give any point."""
        head = self.head_caches
        return self.trunk_caches.is_divisible and (head is None or head.is_divisible)

    def mark(self) -> Mark:
        """The present point. Must be taken between rounds."""
        head = None if self.head_caches is None else self.head_caches.mark()
        size = self.trunk_caches.committed
        return Mark(size, self.trunk_caches.mark(), head, tuple(self.unread))

    def mark_at(self, size: int) -> Mark:
        """The point after the first `size` tokens, fewer than are held, of a divisible state.

        The head's rows up to there pair with tokens up to `size` - 1 only if its last one is left out: that needs
        its hidden again, so with a head the trunk's last row is left out too and the mark is one token shorter.
        """
        if self.head_caches is None:
            return Mark(size, self.trunk_caches.mark(size), None, ())
        size = max(size - 1, 0)
        trunk = self.trunk_caches.mark(size)
        read = min(size, self.head_caches.committed)
        waiting = size - read
        unread = (mx.concatenate(self.unread, axis=1)[:, :waiting],) if waiting else ()
        return Mark(size, trunk, self.head_caches.mark(read), unread)

    def cut(self, mark: Mark) -> None:
        """Return to a mark of this state."""
        del self.tokens[mark.size :]
        self.trunk_caches.cut(mark.trunk)
        if self.head_caches is not None and mark.head is not None:
            self.head_caches.cut(mark.head)
        self.unread = list(mark.unread)

    def fork(self, mark: Mark) -> DecodeState:
        """Another state, as this one was at the mark; neither sees what the other does later."""
        head = None
        if self.head_caches is not None and mark.head is not None:
            head = self.head_caches.fork(mark.head)
        trunk = self.trunk_caches.fork(mark.trunk)
        return DecodeState(trunk, head, self.tokens[: mark.size], list(mark.unread))

    def snapshot(self) -> Snapshot:
        """The present point. Must be taken between rounds."""
        head = None if self.head_caches is None else self.head_caches.snapshot()
        return Snapshot(
            self.trunk_caches.committed, self.trunk_caches.snapshot(), head, tuple(self.unread)
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Return to an earlier point of the same sequence."""
        del self.tokens[snapshot.size :]
        self.trunk_caches.restore(snapshot.trunk)
        if self.head_caches is not None and snapshot.head is not None:
            self.head_caches.restore(snapshot.head)
        self.unread = list(snapshot.unread)
