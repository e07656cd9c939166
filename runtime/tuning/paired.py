"""Comparing two ways of decoding that met round by round, on prompts of several domains in turns.

A ratio of speeds differs more from domain to domain than from round to round, so rounds of one domain are compared
with each other. Round `i` is of domain `i % domains`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mtplx.runtime.tuning import statistics
from mtplx.runtime.tuning.statistics import Gain

_Floats = npt.NDArray[np.float64]


def paired_gain(
    speeds: Sequence[float], base: Sequence[float], *, domains: int, confidence: float
) -> Gain:
    """The geometric mean over domains of the median of `speeds[i] / base[i]`, with its percentile bootstrap interval.

    Rounds are drawn within their domain. The seed is fixed: the same speeds give the same interval.
    """
    logs = _log_ratios(speeds, base)
    rng = np.random.default_rng(statistics.SEED)
    parts = [logs[domain::domains] for domain in range(min(domains, len(logs)))]
    draws = [rng.integers(0, len(part), (statistics.RESAMPLES, len(part))) for part in parts]
    drawn = [np.median(part[draw], axis=1) for part, draw in zip(parts, draws, strict=True)]
    tail = (1.0 - confidence) / 2.0
    low, high = np.exp(np.quantile(np.mean(drawn, axis=0), [tail, 1.0 - tail]))
    middle = np.exp(np.mean([np.median(part) for part in parts]))
    return Gain(float(middle), float(low), float(high))


def chance_of_equals(speeds: Sequence[float], base: Sequence[float]) -> float:
    """How often two ways of equal speed would look as good for the first one, by Wilcoxon's signed ranks.

    Exact whatever the noise is, as long as it meets both alike, and with few rounds, where the bootstrap interval of a
    median is too narrow. Wilcoxon, Biometrics Bulletin 1, 1945; equal rounds count against the first.
    """
    logs = _log_ratios(speeds, base)
    ranks = np.empty(len(logs), dtype=np.int64)
    ranks[np.argsort(np.abs(logs), kind="stable")] = np.arange(1, len(logs) + 1)
    against = int(ranks[logs <= 0.0].sum())
    # The distribution of the sum of ranks when every sign is a coin toss.
    chances = np.zeros(len(logs) * (len(logs) + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, len(logs) + 1):
        shifted = np.zeros_like(chances)
        shifted[rank:] = chances[:-rank]
        chances = (chances + shifted) / 2.0
    return float(chances[: against + 1].sum())


def _log_ratios(speeds: Sequence[float], base: Sequence[float]) -> _Floats:
    ratios = np.asarray(speeds, dtype=np.float64) / np.asarray(base, dtype=np.float64)
    return np.asarray(np.log(ratios), dtype=np.float64)
