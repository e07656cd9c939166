"""Which option wins, when a default does, and when nothing can be decided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from mtplx.contracts.errors import CalibrationError
from mtplx.forge.calibrate.significance import choose, choose_likelier, sign_test

ROWS = 1000


def hits(*true_ranges: tuple[int, int]) -> NDArray[np.bool_]:
    rows = np.zeros(ROWS, dtype=bool)
    for start, stop in true_ranges:
        rows[start:stop] = True
    return rows


@given(wins=st.integers(0, 300), losses=st.integers(0, 300))
def test_sign_test_is_the_exact_binomial_test(wins: int, losses: int) -> None:
    expected = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-9)


def test_sign_test_takes_counts_that_no_float_could_hold() -> None:
    assert sign_test(5000, 3000) < 1e-100
    assert sign_test(4000, 4000) == 1.0


def test_an_option_better_on_many_rows_is_measured() -> None:
    choice = choose("feed", {"post": hits((0, 600)), "pre": hits((0, 700))}, "post")
    assert (choice.option, choice.reason) == ("pre", "measured")
    assert choice.p < 1e-20


def test_few_rows_that_differ_leave_the_default() -> None:
    choice = choose("feed", {"post": hits((0, 600)), "pre": hits((0, 603))}, "post")
    assert (choice.option, choice.reason) == ("post", "immaterial")
    assert choice.p == pytest.approx(0.25)


def test_options_that_differ_widely_but_agree_equally_often_leave_the_default() -> None:
    choice = choose("feed", {"post": hits((0, 600)), "pre": hits((40, 645))}, "post")
    assert (choice.option, choice.reason) == ("post", "tie, family default")


def test_equal_options_beside_a_worse_default_are_refused_with_their_scores() -> None:
    options = {"as loaded": hits((0, 100)), "+1": hits((0, 700)), "-1": hits((5, 706))}
    with pytest.raises(CalibrationError) as raised:
        choose("norms", options, "as loaded")
    message = str(raised.value)
    assert "norms is not decided" in message
    assert "+1 (70.0%)" in message
    assert "-1 (70.1%)" in message
    assert "more text" in message


def test_a_default_that_was_dropped_before_counts_as_worse() -> None:
    with pytest.raises(CalibrationError, match="the default, as loaded, is worse"):
        choose("norms", {"+1": hits((0, 700)), "-1": hits((5, 706))}, "as loaded")


def test_a_lone_survivor_is_measured() -> None:
    assert choose("norms", {"+1": hits((0, 700))}, "as loaded").reason == "measured"


def test_more_rivals_need_more_evidence() -> None:
    # 19 rows against 5 is p = 0.007: enough between two, too little among many.
    ahead, behind = hits((0, 519)), hits((19, 524))
    assert choose("x", {"a": ahead, "b": behind}, "b").reason == "measured"
    crowd = {"a": ahead, "b": behind, **{str(i): hits((0, 10)) for i in range(5)}}
    assert choose("x", crowd, "b").option == "b"


def chances(seed: int, gain: float, spread: float) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    base = -rng.exponential(2.0, ROWS)
    return {
        "post": base.astype(np.float32),
        "pre": (base + rng.normal(gain, spread, ROWS)).astype(np.float32),
    }


def test_a_small_gain_in_every_row_is_measured_by_likelihood() -> None:
    choice = choose_likelier("recycle", chances(1, gain=0.01, spread=0.05))
    assert (choice.option, choice.reason) == ("pre", "measured by likelihood")
    assert choice.p < 1e-6


def test_a_gain_within_noise_is_called_immaterial() -> None:
    choice = choose_likelier("recycle", chances(2, gain=0.001, spread=0.05))
    assert choice.reason == "immaterial, likelier"
    assert choice.p > 0.01


def test_noise_alone_is_seldom_called_measured() -> None:
    choices = [choose_likelier("recycle", chances(seed, 0.0, 0.05)) for seed in range(300)]
    assert sum(choice.reason == "measured by likelihood" for choice in choices) <= 10


def test_equal_likelihoods_decide_nothing() -> None:
    same = np.zeros(10, dtype=np.float32)
    assert choose_likelier("recycle", {"post": same, "pre": same}).p == 1.0


def test_a_chance_that_is_no_number_is_refused() -> None:
    rows = chances(3, 0.0, 0.1)
    rows["pre"][7] = np.nan
    with pytest.raises(CalibrationError, match="no numbers"):
        choose_likelier("recycle", rows)
