"""Whether one speed is higher than another: paired ratios, a bootstrap interval and the rule for a win."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mtplx.contracts.contract_parts import MIN_GAIN
from mtplx.contracts.errors import UsageError

CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 20_240_229


class Gain(NamedTuple):
    """Speed over a base: median of the paired ratios, and an interval around it."""

    median: float
    low: float
    high: float

    @property
    def is_win(self) -> bool:
        """Whether the whole interval lies above 1 and the median gain is at least 5 %."""
        return self.low > 1.0 and self.median >= MIN_GAIN


def gain(speeds: Sequence[float], base: Sequence[float], *, confidence: float = CONFIDENCE) -> Gain:
    """Median of `speeds[i] / base[i]`, with the percentile bootstrap interval of that median.

    The two speeds of a pair were measured one after the other, so that drift of the machine cancels. The interval
    needs no assumption about the distribution of the ratios (Efron, Annals of Statistics 7, 1979); with few pairs it
    is as wide as their range, which is too narrow below `least_pairs`. It is drawn with a fixed seed: the same speeds
    give the same interval.

    Raises:
        UsageError: there are no pairs, or speeds without a partner.
    """
    if not speeds or len(speeds) != len(base):
        raise UsageError(
            f"{len(speeds)} speeds were given to be compared with {len(base)}.",
            hint="Measure both as often, and at least once.",
        )
    ratios = np.asarray(speeds, dtype=np.float64) / np.asarray(base, dtype=np.float64)
    draws = np.random.default_rng(SEED).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    medians = np.median(ratios[draws], axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return Gain(float(np.median(ratios)), float(low), float(high))


def simultaneous_confidence(comparisons: int) -> float:
    """The confidence each of several intervals needs so that all hold together with 95 % (Bonferroni)."""
    return 1.0 - (1.0 - CONFIDENCE) / max(comparisons, 1)


def least_pairs(confidence: float) -> int:
    """How many pairs an interval of their median needs to reach `confidence`.

    All n ratios lie on the same side of the true median with chance 2^(1 - n), so not even their whole range covers
    it more often than 1 - 2^(1 - n).
    """
    return 1 + math.ceil(-math.log2(1.0 - confidence))


def best_win(gains: Mapping[int, Gain]) -> int | None:
    """The winning depth whose gain is the surest, by lower bound; None when none wins."""
    wins = [depth for depth, found in gains.items() if found.is_win]
    return max(wins, key=lambda depth: (gains[depth].low, gains[depth].median), default=None)
