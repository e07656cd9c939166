"""The adaptive depth is the best one by measured costs and observed acceptance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.runtime.decode.depth import MAX_DEPTH, AdaptiveDepth, Costs, FixedDepth

CHEAP = Costs(rows=(1.0, 1.02, 1.04, 1.06, 1.08), draft=0.05, overhead=0.0, step_seconds=0.01)
DEAR = Costs(rows=(1.0, 2.0, 3.0, 4.0, 5.0), draft=0.5, overhead=0.0, step_seconds=0.01)


def speed(costs: Costs, acceptance: list[float], depth: int) -> float:
    """Expected tokens per unit of time at ``depth``."""
    expected, reach = 1.0, 1.0
    for chance in acceptance[:depth]:
        reach *= chance
        expected += reach
    return expected / costs.round(depth)


def brute_force(costs: Costs, acceptance: list[float]) -> int:
    """The fastest depth, by trying all."""
    return max(range(len(acceptance) + 1), key=lambda depth: speed(costs, acceptance, depth))


def taught(costs: Costs, history: list[tuple[int, int]]) -> AdaptiveDepth:
    policy = AdaptiveDepth(costs, MAX_DEPTH)
    for drafted, accepted in history:
        policy.record(drafted, accepted)
    return policy


@st.composite
def convex_costs(draw: st.DrawFn) -> Costs:
    """Rows that never get cheaper one by one: then the marginal rule stops at the maximum."""
    steps = sorted(draw(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=MAX_DEPTH)))
    rows = [1.0]
    for step in steps:
        rows.append(rows[-1] + step)
    draft, overhead = draw(st.floats(0.0, 0.5)), draw(st.floats(0.0, 0.3))
    return Costs(tuple(rows), draft, overhead, 0.01)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int]]:
    rounds = []
    for drafted in draw(st.lists(st.integers(0, MAX_DEPTH), max_size=40)):
        rounds.append((drafted, draw(st.integers(0, drafted))))
    return rounds


@given(convex_costs(), histories())
def test_the_marginal_rule_finds_the_best_depth(
    costs: Costs, history: list[tuple[int, int]]
) -> None:
    policy = AdaptiveDepth(costs, MAX_DEPTH)
    for drafted, accepted in history:
        drafted = min(drafted, policy.max_depth)
        policy.record(drafted, min(accepted, drafted))
    acceptance = policy.acceptance()
    best, found = brute_force(costs, acceptance), policy.best_depth()
    assert speed(costs, acceptance, found) == pytest.approx(speed(costs, acceptance, best))


@given(histories())
def test_acceptance_is_a_probability(history: list[tuple[int, int]]) -> None:
    policy = taught(CHEAP, [(min(d, 4), min(a, d, 4)) for d, a in history])
    assert all(0.0 <= a <= 1.0 for a in policy.acceptance())
    assert 0 <= policy.next_depth() <= policy.max_depth


def test_drafts_that_are_always_right_go_as_deep_as_was_measured() -> None:
    assert taught(CHEAP, [(4, 4)] * 30).next_depth() == 4


def test_drafts_that_are_never_right_end_in_plain_decoding() -> None:
    assert taught(CHEAP, [(1, 0)] * 60).best_depth() == 0


def test_rows_that_cost_as_much_as_steps_do_not_pay() -> None:
    assert taught(DEAR, [(4, 4)] * 30).best_depth() == 0


def test_plain_decoding_tries_a_draft_now_and_then() -> None:
    policy = taught(CHEAP, [(1, 0)] * 100)
    depths = [policy.next_depth() for _ in range(100)]
    assert set(depths) == {0, 1}
    assert 2 <= depths.count(1) <= 5


def test_a_text_that_becomes_predictable_is_noticed() -> None:
    policy = taught(CHEAP, [(1, 0)] * 100)
    for _ in range(400):
        depth = policy.next_depth()
        policy.record(depth, depth)
    assert policy.next_depth() >= 2


def test_a_text_that_stops_being_predictable_is_noticed() -> None:
    policy = taught(CHEAP, [(4, 4)] * 200)
    for _ in range(200):
        policy.record(policy.next_depth(), 0)
    assert policy.best_depth() <= 1


def test_a_draft_behind_a_rejected_one_says_nothing() -> None:
    one, four = taught(CHEAP, [(1, 0)] * 10), taught(CHEAP, [(4, 0)] * 10)
    assert one.acceptance() == four.acceptance()


def test_depth_is_limited_by_what_was_measured() -> None:
    assert AdaptiveDepth(CHEAP, MAX_DEPTH).max_depth == 4
    assert AdaptiveDepth(CHEAP, 2).max_depth == 2
    assert AdaptiveDepth(Costs((1.0,), 0.1, 0.0, 0.01), MAX_DEPTH).next_depth() == 0


def test_a_fixed_depth_learns_nothing() -> None:
    policy = FixedDepth(3)
    policy.record(3, 0)
    assert policy.next_depth() == 3


def test_a_round_costs_its_rows_its_drafts_and_the_overhead() -> None:
    costs = Costs((1.0, 1.5, 1.9), draft=0.1, overhead=0.05, step_seconds=0.01)
    assert costs.round(0) == pytest.approx(1.05)
    assert costs.round(2) == pytest.approx(1.9 + 0.2 + 0.05)
