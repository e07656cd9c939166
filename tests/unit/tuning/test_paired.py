"""The statistics of two ways of decoding that met round by round."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mtplx.runtime.tuning.paired import chance_of_equals, paired_gain


@pytest.mark.parametrize("rounds", [5, 12, 40])
def test_the_chance_is_that_of_signed_ranks(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    for _ in range(10):
        own, base = rng.normal(55, 8, rounds).clip(5), rng.normal(50, 8, rounds).clip(5)
        expected = stats.wilcoxon(np.log(own / base), alternative="greater", method="exact").pvalue
        assert chance_of_equals(list(own), list(base)) == pytest.approx(expected)


def test_all_rounds_won_are_as_likely_as_as_many_heads() -> None:
    assert chance_of_equals([2.0] * 10, [1.0] * 10) == pytest.approx(2.0**-10)
    assert chance_of_equals([1.0] * 10, [1.0] * 10) == pytest.approx(1.0)


def test_a_small_loss_weighs_less_than_a_large_one() -> None:
    base = [1.0] * 10
    small = chance_of_equals([0.99, *[1.5] * 9], base)
    assert small < chance_of_equals([0.2, *[1.5] * 9], base)


def test_of_one_domain_it_is_the_median_of_the_ratios() -> None:
    found = paired_gain([2.0, 3.0, 10.0], [1.0, 1.0, 1.0], domains=1, confidence=0.95)
    assert found.median == pytest.approx(3.0)
    assert [found.low, found.high] == pytest.approx([2.0, 10.0])


def test_domains_have_the_same_weight() -> None:
    found = paired_gain([2.0, 8.0, 2.0], [1.0, 1.0, 1.0], domains=2, confidence=0.95)
    assert found == pytest.approx((4.0, 4.0, 4.0))


def test_the_same_speeds_give_the_same_interval() -> None:
    rng = np.random.default_rng(0)
    own, base = list(rng.normal(60, 5, 12)), list(rng.normal(50, 5, 12))
    first = paired_gain(own, base, domains=3, confidence=0.99)
    assert first == paired_gain(own, base, domains=3, confidence=0.99)
    assert first.low < first.median < first.high


def test_drift_that_meets_both_alike_cancels() -> None:
    drift = np.linspace(100.0, 20.0, 12)
    found = paired_gain(list(1.3 * drift), list(drift), domains=3, confidence=0.99)
    assert found == pytest.approx((1.3, 1.3, 1.3))
