"""The state of one sequence between rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import InternalError
from mtplx.runtime.caches.base import Snapshot as CacheSnapshot
from mtplx.runtime.caches.composite import CacheSet


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
