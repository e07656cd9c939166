"""What a head may be wired like: the points of the space that calibration searches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtplx.contracts.family import ConcatOrder, HiddenPoint, Wiring

POINTS: tuple[HiddenPoint, ...] = ("post", "pre")
ORDERS: tuple[ConcatOrder, ...] = ("embedding_hidden", "hidden_embedding")
# As loaded, a missed shift, a doubled shift.
SHIFTS = (0, 1, -1)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A wiring, and what is added to each norm gain of the head as loaded."""

    wiring: Wiring
    shifts: tuple[int, ...]

    @property
    def is_uniform(self) -> bool:
        """Whether all norms are shifted alike, as by one mistake."""
        return len(set(self.shifts)) <= 1

    @property
    def is_of_one_sign(self) -> bool:
        """Whether the shifts are of one direction, each at most 1."""
        return set(self.shifts) <= {0, 1} or set(self.shifts) <= {0, -1}

    @property
    def num_shifted(self) -> int:
        """Norms that do not stay as they are."""
        return sum(shift != 0 for shift in self.shifts)

    def wired(self, **changes: Any) -> Candidate:
        """With other fields of the wiring."""
        return replace(self, wiring=replace(self.wiring, **changes))

    def shifted(self, index: int, shift: int) -> Candidate:
        """With another shift of one norm."""
        return replace(self, shifts=(*self.shifts[:index], shift, *self.shifts[index + 1 :]))

    def shifted_alike(self, shift: int) -> Candidate:
        """With one shift for all norms."""
        return replace(self, shifts=(shift,) * len(self.shifts))

    def norm_shift(self, names: Sequence[str]) -> dict[str, int]:
        """The shifts that are not 0, by name."""
        return {name: s for name, s in zip(names, self.shifts, strict=True) if s}

    def describe(self, names: Sequence[str]) -> str:
        """One line for people."""
        wiring = self.wiring
        text = f"feed {wiring.feed}, recycle {wiring.recycle}, {wiring.concat}"
        if self.is_uniform:
            shift = self.shifts[0] if self.shifts else 0
            return f"{text}, norms " + (f"{shift:+d}" if shift else "as loaded")
        mixed = ", ".join(f"{name} {s:+d}" for name, s in self.norm_shift(names).items())
        return f"{text}, {mixed}"


def grid(default: Candidate) -> list[Candidate]:
    """Every feed, order and uniform shift of the norms, the default first."""
    points = [
        default.wired(feed=feed, concat=concat).shifted_alike(shift)
        for shift, feed, concat in itertools.product(SHIFTS, POINTS, ORDERS)
    ]
    return sorted(points, key=lambda point: point != default)


def neighbours(candidate: Candidate) -> list[Candidate]:
    """Every candidate that differs in one norm, in what is fed, or in the order."""
    return [
        *_norm_moves(candidate, 1),
        *(candidate.wired(feed=feed) for feed in POINTS if feed != candidate.wiring.feed),
        *(candidate.wired(concat=order) for order in ORDERS if order != candidate.wiring.concat),
    ]


def pairs(candidate: Candidate) -> list[Candidate]:
    """Every candidate that differs in two norms, by the same step.

    The two input norms set how much embedding and hidden weigh against each other: where both are wrong, righting
    one of them makes things worse.
    """
    return list(_norm_moves(candidate, 2))


def _norm_moves(candidate: Candidate, count: int) -> Iterator[Candidate]:
    """`count` norms moved by -1 or +1. A converter misses the shift or doubles it, so signs are never mixed."""
    for indices in itertools.combinations(range(len(candidate.shifts)), count):
        for step in (1, -1):
            moved = candidate
            for index in indices:
                moved = moved.shifted(index, moved.shifts[index] + step)
            if moved.is_of_one_sign:
                yield moved
