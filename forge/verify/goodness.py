"""Whether counts fit a law: Pearson's chi-square with a simulated null distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 4000


def goodness_of_fit(
    counts: NDArray[np.int64], law: NDArray[np.float64], rng: np.random.Generator
) -> float:
    """p-value of `counts` as draws from `law`  # [K], [K].

    The statistic is compared with that of multinomial draws from `law` itself, so it holds for cells as rare as they
    come (Hope, JRSS B 30, 1968). The smallest p-value is 1 / 4001; an impossible outcome gives 0.
    """
    possible = law > 0.0
    if counts[~possible].any():
        return 0.0
    total = int(counts.sum())
    if total == 0:
        return 1.0
    weights = law[possible] / law.sum()
    expected = total * weights
    seen = _chi_square(counts[possible], expected)
    null = _chi_square(rng.multinomial(total, weights, size=DRAWS), expected)
    # Sums of another order must not make an equal statistic a smaller one.
    return float((1 + np.count_nonzero(null >= seen * (1.0 - 1e-9))) / (DRAWS + 1))


def _chi_square(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> Any:
    return (np.square(counts - expected) / expected).sum(axis=-1)
