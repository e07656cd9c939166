"""Random histories of a cache, and what they leave committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

Step = tuple[str, int]


@st.composite
def programs(draw: st.DrawFn, *, max_steps: int = 10, max_rows: int = 5) -> list[Step]:
    """Steps: "append" of so many rows, "commit" of that percentage, or another of History."""
    names = ("append", "append", "append", "commit", "commit", "rollback", "snapshot", "restore")
    steps = draw(st.lists(st.sampled_from(names), min_size=3, max_size=max_steps))
    sizes = {"append": st.integers(1, max_rows), "commit": st.integers(0, 100)}
    return [(name, draw(sizes.get(name, st.just(0)))) for name in steps]


@dataclass
class History:
    """Runs a program against caches and knows which row ids are committed at its end.

    `append(caches, ids)` puts rows with these ids into the caches. Ids never repeat, so a row that
    should have been forgotten can't pass for one that was kept.
    """

    caches: Any
    append: Callable[[Any, list[int]], Any]
    committed: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    saved: tuple[Any, list[int]] | None = None
    next_id: int = 1

    def run(self, program: list[Step]) -> History:
        """All steps, then a commit of half of what is pending."""
        for name, size in program:
            getattr(self, "do_" + name)(size)
            self.caches.check()
        self.do_commit(50)
        self.caches.check()
        assert self.caches.committed == self.caches.offset == len(self.committed)
        return self

    def fresh_ids(self, count: int) -> list[int]:
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        return ids

    def do_append(self, rows: int) -> None:
        if not self.pending:
            self.caches.arm()
        ids = self.fresh_ids(rows)
        self.append(self.caches, ids)
        self.pending += ids

    def do_commit(self, percent: int) -> None:
        kept = len(self.pending) * percent // 100
        self.caches.commit(kept)
        self.committed += self.pending[:kept]
        self.pending = []

    def do_rollback(self, _: int) -> None:
        self.caches.rollback()
        self.pending = []

    def do_snapshot(self, _: int) -> None:
        self.do_commit(100)
        self.saved = (self.caches.snapshot(), list(self.committed))

    def do_restore(self, _: int) -> None:
        if self.saved is None:
            return
        self.caches.restore(self.saved[0])
        self.committed, self.pending = list(self.saved[1]), []
