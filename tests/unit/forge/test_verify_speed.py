"""When a depth counts as faster, on scripted speeds, and what a verification concludes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.contracts.errors import UsageError
from mtplx.forge.verify.exactness import DraftCount, ExactnessResult, Parting
from mtplx.forge.verify.law import LawCheck, LawResult
from mtplx.forge.verify.settings import VerifySettings
from mtplx.forge.verify.speed import SpeedResult, compare_depths
from mtplx.forge.verify.verdict import VerifyVerdict, conclude
from mtplx.runtime.tuning.job import Job, Outcome
from mtplx.runtime.tuning.statistics import (
    best_win,
    gain,
    least_pairs,
    simultaneous_confidence,
)

TOKENS = 64
EXACT = ExactnessResult(
    tokens=100, differences=(), ties=(), drafts=(DraftCount(1, 50, 40),), plain_sha256="0" * 64
)
SOUND = LawCheck("rejection", "code-1", 0.5, 0.5, 0.5, 0.5, 0.5, 0.0)
LAW = LawResult((SOUND,), (), 1000, 0.001)


class ScriptedWorker:
    """Decodes at the speeds given for each depth, in turn, and keeps drafts at the shares given."""

    def __init__(
        self, speeds: Mapping[int, Sequence[float]], kept: dict[int, Sequence[int]] | None = None
    ) -> None:
        self._speeds = {depth: itertools.cycle(values) for depth, values in speeds.items()}
        self._kept = kept or {}
        self.asked: list[tuple[int, int]] = []

    def run(self, job: Job) -> Outcome:
        depth = job.depth or 0
        self.asked.append((depth, job.max_tokens))
        kept = list(self._kept.get(depth, [9] * depth))
        tokens = list(range(job.max_tokens))
        return Outcome(tokens, 0.1, next(self._speeds[depth]), [10] * depth, kept)


def measured(
    speeds: dict[int, Sequence[float]], kept: dict[int, Sequence[int]] | None = None
) -> SpeedResult:
    """One prompt, so that a repeat's speed is that of its only run; the first run of each is the warm-up."""
    repeats = max(map(len, speeds.values()))
    settings = VerifySettings(
        depths=tuple(depth for depth in speeds if depth), repeats=repeats, max_tokens=TOKENS
    )
    scripted = {depth: [1e9, *values] for depth, values in speeds.items()}
    return compare_depths(
        ScriptedWorker(scripted, kept), {"code": [1, 2]}, settings, lambda _label, _done: None
    )


def around(centre: float, spread: float, seed: int, count: int = 9) -> list[float]:
    return [float(v) for v in np.random.default_rng(seed).normal(centre, spread, count)]


@pytest.mark.parametrize("seed", range(5))
def test_a_gain_within_the_noise_wins_nothing(seed: int) -> None:
    found = measured({0: around(50, 3, seed), 1: around(50.5, 3, seed + 100)})
    assert found.winner is None


@pytest.mark.parametrize("seed", range(5))
def test_a_gain_far_beyond_the_noise_wins(seed: int) -> None:
    found = measured({0: around(50, 3, seed), 1: around(65, 3, seed + 100)})
    assert found.winner is not None
    assert found.winner.depth == 1
    assert found.winner.gain.low > 1.0


def test_a_sure_gain_below_five_percent_wins_nothing() -> None:
    found = measured({0: [50.0] * 7, 1: [51.5] * 7})
    assert found.rows[1].gain.low > 1.0
    assert found.winner is None


def test_a_large_median_gain_with_an_interval_over_one_wins_nothing() -> None:
    found = measured({0: [50.0] * 7, 1: [60.0] * 5 + [40.0] * 2})
    assert found.rows[1].gain.median == pytest.approx(1.2)
    assert found.winner is None


def test_drift_that_slows_both_alike_cancels() -> None:
    drift = [50.0, 45.0, 40.0, 30.0, 20.0, 15.0, 10.0]
    found = measured({0: drift, 1: [1.3 * speed for speed in drift]})
    assert found.rows[1].gain == pytest.approx((1.3, 1.3, 1.3))


def test_systems_take_turns_and_the_warm_up_does_not_count() -> None:
    worker = ScriptedWorker({0: [1e9, 50.0, 50.0], 2: [1.0, 60.0, 60.0]})
    settings = VerifySettings(depths=(2,), repeats=2, max_tokens=TOKENS)
    found = compare_depths(worker, {"code": [1]}, settings, lambda _label, _done: None)
    assert worker.asked == [(0, 16), (2, 16), (0, 64), (2, 64), (0, 64), (2, 64)]
    assert found.rows[1].gain.median == pytest.approx(1.2)


def test_of_two_winners_the_surer_one_is_taken() -> None:
    found = measured({0: [50.0] * 7, 1: [65.0] * 7, 3: [56.0, 56.0, *[70.0] * 5]})
    assert found.winner is not None
    assert found.winner.depth == 1


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    rng, true, covered = np.random.default_rng(5), 1.2, 0
    for _ in range(300):
        base = rng.normal(50, 2, 15)
        speeds = true * base * rng.normal(1.0, 0.05, 15)
        found = gain(list(speeds), list(base))
        covered += found.low <= true <= found.high
    assert 0.90 <= covered / 300 <= 0.995


@given(st.lists(st.floats(1.0, 1e3), min_size=1, max_size=8), st.floats(0.1, 10.0))
def test_the_median_lies_in_its_interval_and_scales(speeds: list[float], factor: float) -> None:
    base = [10.0] * len(speeds)
    found = gain(speeds, base)
    assert found.low <= found.median <= found.high
    scaled = gain([speed * factor for speed in speeds], base)
    assert scaled == pytest.approx(tuple(value * factor for value in found))


@pytest.mark.parametrize("comparisons", [1, 2, 3, 8])
def test_repeats_are_enough_when_their_range_could_cover_the_truth(comparisons: int) -> None:
    confidence = simultaneous_confidence(comparisons)
    needed = least_pairs(confidence)
    # The range misses the median when all ratios fall on one side of it, like coins that all fall alike.
    assert 1.0 - 2 * 0.5**needed >= confidence > 1.0 - 2 * 0.5 ** (needed - 1)


def test_too_few_repeats_never_win_and_say_so() -> None:
    few = measured({0: [50.0] * 6, 1: [80.0] * 6, 2: [65.0] * 6})
    assert all(row.gain.is_win for row in few.rows[1:])
    assert few.winner is None
    verdict, reasons = conclude(EXACT, LAW, few)
    assert verdict is VerifyVerdict.NO_MTP_DEPTH_BEAT_AR
    assert reasons == ("6 repeats can't show a gain at this confidence, 7 or more can",)
    assert measured({0: [50.0] * 6, 1: [80.0] * 6}).winner is not None


def test_speeds_without_partners_are_refused() -> None:
    with pytest.raises(UsageError, match="2 speeds were given to be compared with 1"):
        gain([1.0, 2.0], [1.0])


def test_more_comparisons_need_more_confidence() -> None:
    assert simultaneous_confidence(1) == pytest.approx(0.95)
    assert simultaneous_confidence(5) == pytest.approx(0.99)
    assert best_win({}) is None


def test_the_row_of_a_depth_has_the_names_of_the_public_format() -> None:
    found = measured({0: [50.0] * 7, 2: [60.0] * 7}, kept={2: [8, 5]})
    plain, row = (row.to_json() for row in found.rows)
    assert plain["gain_interval"] is None
    assert (row["depth"], row["tok_s"]) == (2, pytest.approx(60.0))
    assert row["multiplier_vs_ar"] == pytest.approx(1.2)
    assert row["acceptance_by_position"] == [0.8, 0.5]
    assert row["acceptance_by_domain"] == {"code": [0.8, 0.5]}


def test_a_winning_depth() -> None:
    speed = measured({0: [50.0] * 7, 1: [65.0] * 7})
    assert conclude(EXACT, LAW, speed) == (VerifyVerdict.MTP_DEPTH_WINS, ())
    assert VerifyVerdict.MTP_DEPTH_WINS.exit_code == 0


def test_no_depth_that_wins_is_explained_row_by_row() -> None:
    verdict, reasons = conclude(EXACT, LAW, measured({0: [50.0] * 7, 1: [40.0] * 7, 2: [51.0] * 7}))
    assert verdict is VerifyVerdict.NO_MTP_DEPTH_BEAT_AR
    assert verdict.exit_code == 13
    assert reasons[0].startswith("depth 1 is 0.80 times as fast")
    assert reasons[1].startswith("depth 2 is 1.02 times as fast")


def test_acceptance_that_collapsed_is_no_matter_of_speed() -> None:
    speed = measured({0: [50.0] * 7, 1: [65.0] * 7}, kept={1: [0]})
    verdict, reasons = conclude(EXACT, LAW, speed)
    assert verdict is VerifyVerdict.MTP_ACCEPTANCE_COLLAPSED
    assert verdict.exit_code == 13
    assert "0.0% of the first drafts" in reasons[0]


def test_a_difference_outweighs_every_gain() -> None:
    parting = Parting("code-1", "greedy, depth 2, chunk 7", 5, 17, 18, 0.8, 0.001, "token by token")
    inexact = dataclasses.replace(EXACT, differences=(parting,) * 7)
    verdict, reasons = conclude(inexact, LAW, measured({0: [50.0] * 7, 1: [65.0] * 7}))
    assert verdict is VerifyVerdict.EXACTNESS_FAILED
    assert verdict.exit_code == 10
    assert "greedy, depth 2, chunk 7: token 5 is 18, plain decoding gives 17" in reasons[0]
    assert reasons[-1] == "and 2 more differences"


def test_a_law_that_is_not_kept_is_no_exactness() -> None:
    broken = LawCheck("block", "prose-1", 0.0, 0.0, None, 0.9, 0.5, 40.0)
    verdict, reasons = conclude(EXACT, LawResult((SOUND, broken), (), 1000, 0.001), None)
    assert verdict is VerifyVerdict.EXACTNESS_FAILED
    assert "block does not follow its law after prose-1" in reasons[0]


def test_nothing_compared_proves_nothing() -> None:
    verdict, reasons = conclude(dataclasses.replace(EXACT, tokens=0), LAW, None)
    assert verdict is VerifyVerdict.EXACTNESS_FAILED
    assert "no token was compared" in reasons[0]


def test_equality_without_drafts_proves_nothing_of_that_depth() -> None:
    drafts = (DraftCount(1, 50, 40), DraftCount(3, 0, 0))
    verdict, reasons = conclude(dataclasses.replace(EXACT, drafts=drafts), LAW, None)
    assert verdict is VerifyVerdict.EXACTNESS_FAILED
    assert reasons == ("no draft was made at depth 3, so nothing of it was tested",)


def test_exact_without_speed() -> None:
    assert conclude(EXACT, LAW, None) == (VerifyVerdict.EXACTNESS_PASSED, ())
    assert VerifyVerdict.EXACTNESS_PASSED.exit_code == 0
