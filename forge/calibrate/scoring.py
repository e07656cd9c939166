"""Agreement of candidates, measured no further than it takes to tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from mtplx.forge.calibrate.agreement import Hits, Likelihoods, Window, likelihoods, score_window
from mtplx.forge.calibrate.candidates import Candidate
from mtplx.forge.calibrate.norms import HeadNorms
from mtplx.forge.calibrate.significance import CLEAR, compare
from mtplx.runtime.heads.head import Head
from mtplx.runtime.trunks.trunk import Trunk

# A challenger that is not ahead after this many rows will not end clearly ahead.
_ROWS_TO_GET_AHEAD = 512


class Scorer:
    """Scores candidates window by window and remembers every result."""

    def __init__(
        self,
        head: Head,
        trunk: Trunk,
        norms: HeadNorms,
        windows: Sequence[Window],
        on_candidate: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """`on_candidate` is told the number of candidates whenever another one is tried."""
        self._module = head.module
        self._trunk = trunk
        self._norms = norms
        self._windows = windows
        self._on_candidate = on_candidate
        self._hits: dict[Candidate, list[list[Hits]]] = {}

    @property
    def tried(self) -> list[Candidate]:
        """Every candidate that was scored, in order of first use."""
        return list(self._hits)

    def agreement(self, candidate: Candidate) -> tuple[float, ...]:
        """Share of rows that agree at depth 1, 2, ..., over all windows scored so far."""
        scored = self._hits[candidate]
        return tuple(float(np.concatenate(depth).mean()) for depth in zip(*scored, strict=False))

    def num_rows(self, candidate: Candidate) -> int:
        """Rows of depth 1 scored so far."""
        return sum(len(window[0]) for window in self._hits[candidate])

    def hits(self, candidate: Candidate, *depths: int) -> Hits:
        """Whether each row of these depths agrees, over all windows."""
        for number in range(len(self._windows)):
            self._score(candidate, number, max(depths))
        return np.concatenate([w[depth - 1] for w in self._hits[candidate] for depth in depths])

    def likelihood(self, candidate: Candidate, *depths: int) -> Likelihoods:
        """Log-probability of the true token in each row of these depths, over all windows."""
        head = Head(self._module, self._trunk, candidate.wiring)
        found: list[Likelihoods] = []
        with self._norms.shifted(candidate.shifts):
            for window in self._windows:
                rows = likelihoods(head, window, self._trunk, max(depths))
                found += [rows[depth - 1] for depth in depths]
        return np.concatenate(found)

    def race(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Those that are not clearly worse at depth 1 than the best, the best first."""
        alive = list(dict.fromkeys(candidates))
        for number in range(len(self._windows)):
            alive = self._round(alive, number)
            if len(alive) == 1:
                break
        return alive

    def challenge(self, incumbent: Candidate, challengers: Iterable[Candidate]) -> Candidate | None:
        """The first challenger that leads its field and is clearly better at depth 1 than the incumbent."""
        alive = list(challengers)
        for number in range(len(self._windows)):
            alive = self._round([incumbent, *alive], number)
            if incumbent not in alive:
                return alive[0]
            alive.remove(incumbent)
            mark = self._first(incumbent, number + 1)
            if len(mark) >= _ROWS_TO_GET_AHEAD:
                alive = [c for c in alive if self._first(c, number + 1).sum() > mark.sum()]
            if not alive:
                break
        return None

    def _round(self, candidates: list[Candidate], number: int) -> list[Candidate]:
        """One more window for all; those that are left, the best first."""
        for candidate in candidates:
            self._score(candidate, number, 1)
        hits = {candidate: self._first(candidate, number + 1) for candidate in candidates}
        order = sorted(candidates, key=lambda candidate: -int(hits[candidate].sum()))
        best = hits[order[0]]
        return [order[0], *(c for c in order[1:] if compare(best, hits[c]) > CLEAR)]

    def _first(self, candidate: Candidate, count: int) -> Hits:
        return np.concatenate([window[0] for window in self._hits[candidate][:count]])

    def _score(self, candidate: Candidate, number: int, depths: int) -> None:
        """Windows are scored in order, so that two candidates always share the first ones."""
        if candidate not in self._hits:
            self._hits[candidate] = []
            self._on_candidate(len(self._hits))
        scored = self._hits[candidate]
        if number < len(scored) and len(scored[number]) >= depths:
            return
        head = Head(self._module, self._trunk, candidate.wiring)
        with self._norms.shifted(candidate.shifts):
            found = score_window(head, self._windows[number], self._trunk, depths)
        scored[number : number + 1] = [found]
