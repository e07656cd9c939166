"""The search for what the head's input side and norms are like, by agreement at depth 1."""

from __future__ import annotations

from mtplx.forge.calibrate.candidates import SHIFTS, Candidate, grid, neighbours, pairs
from mtplx.forge.calibrate.scoring import Scorer
from mtplx.forge.calibrate.significance import ALPHA, compare

# Sound heads agree on 0.6 to 0.9 of the rows at depth 1; what stays below this may be a local optimum.
_HEALTHY = 0.5


def search(scorer: Scorer, default: Candidate) -> Candidate:
    """The best candidate found; of equals the one closest to the head as it was loaded.

    Uniform shifts come first, as one mistake of one converter is likelier than several. From the best of them norms,
    the feed and the order are changed as long as that is clearly better. Unless this ends at a sound head as it was
    loaded, the climb is repeated from the best of each other shift.
    """
    points = grid(default)
    scorer.race(points)
    ends: list[Candidate] = []
    for start in _starts(scorer, points):
        end = _climb(scorer, start)
        ends.append(end)
        if end.num_shifted == 0 and scorer.agreement(end)[0] >= _HEALTHY:
            break
    best = max(ends, key=lambda end: int(scorer.hits(end, 1).sum()))
    equals = [e for e in ends if compare(scorer.hits(best, 1), scorer.hits(e, 1)) > ALPHA]
    return min(equals, key=lambda end: (not end.is_uniform, end.num_shifted))


def _starts(scorer: Scorer, points: list[Candidate]) -> list[Candidate]:
    """The best point of each uniform shift, the best of all first."""

    def agreement(point: Candidate) -> float:
        return scorer.agreement(point)[0]

    bests = [max((p for p in points if p.shifts[0] == s), key=agreement) for s in SHIFTS]
    return sorted(bests, key=agreement, reverse=True)


def _climb(scorer: Scorer, start: Candidate) -> Candidate:
    """Change one thing, or else two norms, while that is clearly better."""
    current, seen = start, {start}
    while better := _step(scorer, current, seen):
        current = better
        seen.add(current)
    return current


def _step(scorer: Scorer, current: Candidate, seen: set[Candidate]) -> Candidate | None:
    for moves in (neighbours, pairs):
        fresh = [candidate for candidate in moves(current) if candidate not in seen]
        if better := scorer.challenge(current, fresh):
            return better
    return None
