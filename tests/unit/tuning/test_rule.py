"""Which depth wins by the figures, on speeds that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.tuning import statistics
from mtplx.runtime.tuning.record import DEEPEST, Depth
from mtplx.runtime.tuning.rule import (
    SCREEN_ROUNDS,
    TIE,
    Speeds,
    allowed_chance,
    clearly_slower,
    judge,
    least_rounds,
    next_look,
    slowest_first,
)

ROUNDS = 12

_DEPTHS: dict[str, Depth] = {"plain": 0, "auto": "auto", **{f"d{n}": n for n in range(1, 9)}}


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for rates, and many times faster."""
    monkeypatch.setattr(statistics, "RESAMPLES", 300)


def steady(*, rounds: int = ROUNDS, **speeds: float) -> Speeds:
    """The same speed in every round; `d3=70.0` is depth 3."""
    return Speeds({_DEPTHS[name]: [speed] * rounds for name, speed in speeds.items()})


def winner(speeds: Speeds, look: int = 1) -> Depth:
    live = [depth for depth in speeds.by_depth if depth != 0]
    return judge(speeds, live, comparisons=len(live), look=look).winner


def test_the_record_knows_every_depth_of_the_runtime() -> None:
    assert DEEPEST == MAX_DEPTH


@pytest.mark.parametrize(
    ("speed", "expected"), [(65.0, 1), (52.6, 1), (52.4, 0), (50.0, 0), (30.0, 0)]
)
def test_a_depth_wins_from_five_percent_on(speed: float, expected: Depth) -> None:
    assert winner(steady(plain=50.0, d1=speed)) == expected


def test_a_gain_that_was_missing_in_some_rounds_is_not_certain() -> None:
    speeds = Speeds({0: [50.0] * ROUNDS, 1: [70.0] * 8 + [40.0] * 4})
    judgement = judge(speeds, [1], comparisons=1, look=1)
    assert judgement.gains[1].median == pytest.approx(1.4)
    assert (judgement.winner, judgement.is_decided) == (0, False)


def test_few_rounds_decide_nothing_however_clear_they_look() -> None:
    needed = least_rounds(1, 1)
    assert winner(steady(rounds=needed - 1, plain=50.0, d1=90.0)) == 0
    assert winner(steady(rounds=needed, plain=50.0, d1=90.0)) == 1


def test_of_nearly_equal_depths_the_shallowest_wins() -> None:
    assert winner(steady(plain=50.0, d1=70.0, d3=70.0 / TIE - 0.1, d4=71.0)) == 1
    assert winner(steady(plain=50.0, d1=70.0, d3=70.0 / TIE + 0.1, d4=71.0)) == 3


def test_a_fixed_depth_is_preferred_to_an_equal_adaptive_one() -> None:
    assert winner(steady(plain=50.0, auto=70.0, d6=69.0)) == 6
    assert winner(steady(plain=50.0, auto=70.0, d6=60.0)) == "auto"


def test_depths_out_of_reach_of_the_winner_are_hopeless_and_the_rest_is_decided() -> None:
    speeds = steady(plain=50.0, d1=60.0, d2=69.5, d3=70.0, d4=51.0)
    judgement = judge(speeds, [1, 2, 3, 4], comparisons=4, look=1)
    assert judgement.hopeless == {1, 4}
    assert (judgement.winner, judgement.is_decided) == (2, True)


@pytest.mark.usefixtures("few_resamples")
def test_a_winner_is_never_hopeless() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        drawn: dict[Depth, list[float]] = {
            d: list(rng.normal(60 + d, 1.5, ROUNDS)) for d in (1, 2, 3)
        }
        speeds = Speeds({0: [50.0] * ROUNDS, **drawn})
        judgement = judge(speeds, [1, 2, 3], comparisons=3, look=1)
        assert judgement.winner not in judgement.hopeless


def test_what_was_dropped_keeps_its_figures_and_cannot_win() -> None:
    speeds = Speeds({**steady(plain=50.0, d1=60.0).by_depth, 3: [90.0] * 4})
    judgement = judge(speeds, [1], comparisons=2, look=1)
    assert judgement.gains[3].median == pytest.approx(1.8)
    assert (judgement.winner, judgement.is_decided) == (1, True)


def test_with_all_dropped_plain_decoding_has_won() -> None:
    judgement = judge(steady(rounds=4, plain=50.0, d1=30.0), [], comparisons=1, look=1)
    assert (judgement.winner, judgement.is_decided) == (0, True)


@pytest.mark.parametrize(
    ("rounds", "dropped"), [([30.0] * 6, {1}), ([30.0] * 5, set()), ([30.0] * 5 + [49.0], set())]
)
def test_a_depth_is_dropped_when_it_was_slower_in_every_of_six_rounds(
    rounds: list[float], dropped: set[Depth]
) -> None:
    speeds = Speeds({0: [50.0] * len(rounds), 1: rounds})
    assert clearly_slower(speeds, [1]) == dropped


def test_a_depth_is_dropped_when_it_is_far_behind_another() -> None:
    assert clearly_slower(steady(rounds=6, plain=50.0, d1=60.0, d2=80.0), [1, 2]) == {1}


def test_the_slowest_come_first() -> None:
    speeds = steady(rounds=SCREEN_ROUNDS, plain=50.0, d1=60.0, d2=80.0, auto=55.0)
    assert slowest_first(speeds, [1, 2, "auto"]) == ["auto", 1, 2]


def test_all_looks_together_err_no_more_often_than_promised() -> None:
    chances = [7 * allowed_chance(7, look) for look in range(1, 60)]
    assert chances[0] == pytest.approx(0.025)
    assert sum(chances) == pytest.approx(0.05)


def test_looks_come_late_enough_for_their_confidence() -> None:
    rounds = least_rounds(7, 1)
    for look in range(2, 12):
        following = next_look(rounds, 7, look)
        assert following > rounds
        assert 2.0**-following <= allowed_chance(7, look)
        rounds = following


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("domains", [1, 3])
def test_equal_speeds_with_much_noise_win_in_less_than_one_of_twenty_sessions(
    domains: int,
) -> None:
    """Looking again and again, at medians that the noise lifts far above the 5 %."""
    rng, sessions, wins = np.random.default_rng(3), 100, 0
    for _ in range(sessions):
        speeds = {depth: list(rng.normal(50.0, 15.0, 40).clip(5.0)) for depth in range(4)}
        rounds, look, won = least_rounds(3, 1), 1, False
        while rounds <= 40:
            seen = Speeds({depth: values[:rounds] for depth, values in speeds.items()}, domains)
            won = won or judge(seen, [1, 2, 3], comparisons=3, look=look).winner != 0
            look += 1
            rounds = next_look(rounds, 3, look)
        wins += won
    assert wins < 0.05 * sessions


def test_what_differs_by_domain_only_is_no_noise() -> None:
    """Half as fast again in each domain, whose speeds lie far apart: as certain as in one domain."""
    plain = [30.0, 50.0, 90.0] * 4
    gains = [1.3, 1.5, 1.8] * 4
    speeds = Speeds({0: plain, 1: [a * b for a, b in zip(plain, gains, strict=True)]}, domains=3)
    judgement = judge(speeds, [1], comparisons=1, look=1)
    found = judgement.gains[1]
    assert found.median == pytest.approx((1.3 * 1.5 * 1.8) ** (1 / 3))
    assert found.high - found.low < 1e-9


def test_a_depth_that_loses_a_little_in_one_domain_of_three_can_win() -> None:
    plain = [50.0] * ROUNDS
    speeds = Speeds({0: plain, 1: [49.0, 70.0, 80.0] * 4}, domains=3)
    assert judge(speeds, [1], comparisons=1, look=1).winner == 1


def test_of_depths_that_cannot_be_told_apart_the_shallowest_wins_and_it_is_still_open() -> None:
    rng = np.random.default_rng(4)
    noise = rng.normal(1.0, 0.1, (2, ROUNDS))
    speeds = Speeds({0: [50.0] * ROUNDS, 1: list(70.0 * noise[0]), 3: list(76.0 * noise[1])})
    judgement = judge(speeds, [1, 3], comparisons=2, look=1)
    assert judgement.gains[3].median > judgement.gains[1].median / TIE
    assert (judgement.winner, judgement.is_decided) == (1, False)


def test_a_shallower_depth_that_is_as_fast_and_not_yet_proven_keeps_it_open() -> None:
    unlucky = [72.0] * (ROUNDS - 3) + [49.0] * 3
    speeds = Speeds({0: [50.0] * ROUNDS, 1: unlucky, 3: [70.0] * ROUNDS})
    judgement = judge(speeds, [1, 3], comparisons=9, look=1)
    assert 1 not in judgement.proven
    assert (judgement.winner, judgement.is_decided) == (3, False)


def test_what_was_proven_at_one_look_stays_proven_at_the_next() -> None:
    speeds = steady(rounds=9, plain=50.0, d1=70.0)
    first = judge(speeds, [1], comparisons=7, look=1)
    assert first.proven == {1}
    assert judge(speeds, [1], comparisons=7, look=9).winner == 0
    assert judge(speeds, [1], comparisons=7, look=9, proven=first.proven).winner == 1
