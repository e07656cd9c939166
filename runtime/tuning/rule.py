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

# Speeds closer than this are the same to a user. Of depths that are not surely slower than the fastest by more, the
# shallowest is taken: it needs less memory and varies less, and the next session finds it again.
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

    `proven` are depths that were shown to be faster than plain decoding, at this look or before. `hopeless` are those
    that surely gain less than 5 %, or are surely slower than one that wins by more than a tie.
    """

    gains: dict[Depth, Gain]
    winner: Depth
    is_decided: bool
    proven: frozenset[Depth]
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


def judge(
    speeds: Speeds,
    live: Collection[Depth],
    *,
    comparisons: int,
    look: int,
    proven: Collection[Depth] = (),
) -> Judgement:
    """Compare all depths with plain decoding (depth 0), and those of `live` with each other.

    Depths that were dropped keep their figures, and can't win. `proven` comes from the looks before.
    """
    chance = allowed_chance(comparisons, look)
    gains = {depth: speeds.over(depth, 0) for depth in speeds.by_depth if depth != 0}
    faster = {depth for depth in live if depth in proven or speeds.chance(depth) <= chance}
    wins = [depth for depth in live if depth in faster and gains[depth].is_win]
    leader = max(wins, key=lambda depth: gains[depth].median, default=None)
    can_tell = speeds.rounds >= least_rounds(comparisons, look)
    rivals = [depth for depth in live if depth != leader] if can_tell else []
    hopeless = frozenset(depth for depth in rivals if _is_hopeless(speeds, depth, leader))
    is_open = (bool(live) and not can_tell) or any(
        _is_open(speeds, depth, leader, wins) for depth in rivals if depth not in hopeless
    )
    winner = min((depth for depth in wins if depth not in hopeless), key=_order, default=0)
    return Judgement(gains, winner, not is_open, frozenset(faster), hopeless)


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


def _is_open(speeds: Speeds, depth: Depth, leader: Depth | None, wins: Collection[Depth]) -> bool:
    """Whether a depth that is not hopeless may yet turn out to be the one to take."""
    if leader is None:
        return True
    first, second = sorted((depth, leader), key=_order)
    return first not in wins or speeds.chance(first, second, factor=TIE) > _SURE


def _order(depth: Depth) -> float:
    """From shallow to deep; the adaptive policy counts as deepest."""
    return math.inf if depth == "auto" else depth
