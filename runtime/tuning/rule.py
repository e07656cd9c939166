"""Which depth wins, when that is certain, and which depths need no further measuring: plain values in and out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mtplx.contracts.contract_parts import MIN_GAIN
from mtplx.runtime.tuning.paired import chance_of_equals, paired_gain
from mtplx.runtime.tuning.record import Depth
from mtplx.runtime.tuning.statistics import CONFIDENCE, Gain

# Speeds closer than this are the same to a user, and the shallower depth then needs less memory and varies less.
TIE = 0.97
# What chance does less often than this is sure enough between depths, where an error loses a little speed at most.
_SURE = (1.0 - CONFIDENCE) / 2.0
# So many rounds tell that a depth which was this much slower in every one of them has no chance. A wrong guess can
# lose a gain, and never invent one: what is dropped cannot win.
_DROP_AFTER = 6
_CLEARLY_SLOWER = 0.95
# So many rounds order the depths well enough to leave the last ones out when the time does not hold all.
SCREEN_ROUNDS = 3
# Between two looks the rounds grow by this factor.
_LOOK_GROWTH = 1.3


class Judgement(NamedTuple):
    """What the figures say at one look; `winner` 0 is plain decoding.

    `hopeless` are depths that surely gain less than 5 %, or are surely slower than one that wins by more than a tie.
    """

    gains: dict[Depth, Gain]
    winner: Depth
    is_decided: bool
    hopeless: frozenset[Depth]


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens a second by depth, one value a round; those of dropped depths end early. `domains` take turns."""

    by_depth: Mapping[Depth, Sequence[float]]
    domains: int = 1

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return len(self.by_depth[0])

    def over(self, depth: Depth, base: Depth) -> Gain:
        """Speed of one depth over another in the rounds that both took part in."""
        own, other = self._common(depth, base)
        return paired_gain(own, other, domains=self.domains, confidence=CONFIDENCE)

    def chance(self, depth: Depth, base: Depth = 0, *, factor: float = 1.0) -> float:
        """How often a depth would look as fast if it were `factor` times as fast as `base`."""
        own, other = self._common(depth, base)
        return chance_of_equals(own, [factor * speed for speed in other])

    def ratios(self, depth: Depth, base: Depth) -> list[float]:
        """The same round by round."""
        return [own / other for own, other in zip(*self._common(depth, base), strict=True)]

    def _common(self, depth: Depth, base: Depth) -> tuple[Sequence[float], Sequence[float]]:
        own, other = self.by_depth[depth], self.by_depth[base]
        rounds = min(len(own), len(other))
        return own[:rounds], other[:rounds]


def allowed_chance(comparisons: int, look: int) -> float:
    """How likely a false win of one depth may be at the `look`-th look, counted from 1.

    The first look may err with half of the 5 %, the next with a quarter, and so on, each shared by all depths: however
    often one looks, a false win anywhere stays below 5 % (union bound).
    """
    return (1.0 - CONFIDENCE) / (max(comparisons, 1) * 2.0**look)


def least_rounds(comparisons: int, look: int) -> int:
    """Rounds without which no depth can win at a look: all of them won are as likely as as many heads."""
    return math.ceil(-math.log2(allowed_chance(comparisons, look)))


def next_look(rounds: int, comparisons: int, look: int) -> int:
    """How many rounds there must be for the `look`-th look, after one at `rounds`."""
    return max(math.ceil(rounds * _LOOK_GROWTH), least_rounds(comparisons, look))


def judge(speeds: Speeds, live: Collection[Depth], *, comparisons: int, look: int) -> Judgement:
    """Compare all depths with plain decoding (depth 0), and those of `live` with each other.

    Depths that were dropped keep their figures, and can't win.
    """
    chance = allowed_chance(comparisons, look)
    gains = {depth: speeds.over(depth, 0) for depth in speeds.by_depth if depth != 0}
    wins = [depth for depth in live if gains[depth].is_win and speeds.chance(depth) <= chance]
    leader = max(wins, key=lambda depth: gains[depth].median, default=None)
    can_tell = speeds.rounds >= least_rounds(comparisons, look)
    hopeless, is_open = set(), bool(live) and not can_tell
    for depth in live if can_tell else ():
        if depth == leader:
            continue
        if _is_hopeless(speeds, depth, leader):
            hopeless.add(depth)
        elif leader is None or speeds.chance(leader, depth, factor=TIE) > _SURE:
            is_open = True
    winner = _winner(gains, [depth for depth in wins if depth not in hopeless])
    return Judgement(gains, winner, not is_open, frozenset(hopeless))


def clearly_slower(speeds: Speeds, live: Collection[Depth]) -> frozenset[Depth]:
    """Depths that were far behind plain decoding, or behind the fastest depth, in every round so far."""
    if speeds.rounds < _DROP_AFTER or not live:
        return frozenset()
    fastest = slowest_first(speeds, (0, *live))[-1]
    return frozenset(
        depth
        for depth in live
        if any(max(speeds.ratios(depth, base)) < _CLEARLY_SLOWER for base in (0, fastest))
    )


def slowest_first(speeds: Speeds, live: Collection[Depth]) -> list[Depth]:
    """`live` by speed over plain decoding, so far."""
    return sorted(live, key=lambda depth: statistics.geometric_mean(speeds.ratios(depth, 0)))


def _is_hopeless(speeds: Speeds, depth: Depth, leader: Depth | None) -> bool:
    """Whether a depth surely gains less than 5 %, or is surely slower than the leader by more than a tie."""
    if speeds.chance(0, depth, factor=1.0 / MIN_GAIN) <= _SURE:
        return True
    return leader is not None and speeds.chance(leader, depth, factor=1.0 / TIE) <= _SURE


def _winner(gains: Mapping[Depth, Gain], wins: Sequence[Depth]) -> Depth:
    """The shallowest of the winning depths that nearly reach the fastest; the adaptive policy counts as deepest."""
    best = max((gains[depth].median for depth in wins), default=0.0)
    near = [depth for depth in wins if gains[depth].median >= TIE * best]
    return min(near, key=lambda depth: math.inf if depth == "auto" else depth, default=0)
