"""How long tuning measures, what it leaves out, and who wins, on a clock that is not real."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.tuning import statistics
from mtplx.runtime.tuning.record import Depth
from mtplx.runtime.tuning.rounds import Measurement
from mtplx.runtime.tuning.rule import Judgement
from tests.support.fake_tuning import FakeClock, FakeWorker

PROMPTS = {"code": [[1, 2], [6, 7]], "chat": [[3, 4, 5]]}
ALL: tuple[Depth, ...] = (1, 2, 3, 4, 5, 6, "auto")
# As deep as the drafts go, as slow: none of them is ever kept.
SLOWER: dict[Depth, float] = {0: 50.0, 1: 40.0, 2: 33.0, 3: 28.0, 4: 24.0, 5: 21.0, 6: 19.0}


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for what is tested here, and many times faster."""
    monkeypatch.setattr(statistics, "RESAMPLES", 300)


def measure(
    worker: FakeWorker,
    clock: FakeClock,
    depths: Sequence[Depth],
    *,
    budget_s: float = 60.0,
) -> tuple[Measurement, Judgement]:
    measurement = Measurement(
        worker=worker,
        prompts=PROMPTS,
        depths=depths,
        clock=clock,
        started=clock.now,
        budget_s=budget_s,
    )
    return measurement, measurement.run()


def winner(plain: float, one: float, three: float, seed: int) -> Depth:
    clock = FakeClock()
    worker = FakeWorker(clock, {0: plain, 1: one, 3: three}, seed=seed)
    return measure(worker, clock, (1, 3))[1].winner


def test_a_gain_within_the_noise_is_no_gain() -> None:
    wins = [seed for seed in range(200) if winner(50.0, 50.5, 30.0, seed) != 0]
    assert len(wins) < 0.05 * 200


def test_a_gain_far_beyond_the_noise_is_found() -> None:
    found = [winner(50.0, 65.0, 30.0, seed) for seed in range(100)]
    assert found.count(1) >= 95
    assert 3 not in found


def test_it_ends_early_when_nothing_is_left_to_decide() -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, {0: 50.0, 1: 65.0, 3: 30.0})
    start = clock.now
    measurement, judgement = measure(worker, clock, (1, 3), budget_s=600.0)
    assert (judgement.winner, judgement.is_decided) == (1, True)
    assert clock.now - start < 300.0
    assert measurement.rounds >= measurement.rounds_needed


def test_it_ends_at_once_when_every_depth_is_clearly_slower() -> None:
    clock = FakeClock()
    measurement, judgement = measure(
        FakeWorker(clock, SLOWER, spread=1.0), clock, (1, 2, 3, 4, 5, 6), budget_s=600.0
    )
    assert (judgement.winner, judgement.is_decided) == (0, True)
    assert measurement.rounds < measurement.rounds_needed
    assert measurement.live == []


def test_depths_that_are_clearly_slower_are_left_out_of_later_rounds() -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, {0: 50.0, 1: 65.0, 3: 30.0})
    measurement, _ = measure(worker, clock, (1, 3))
    rows = {row.depth: row for row in measurement.rows()}
    assert rows[3].rounds < rows[1].rounds == rows[0].rounds == measurement.rounds
    assert (rows[3].was_dropped, rows[1].was_dropped) == (True, False)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("budget_s", [30.0, 60.0, 90.0])
def test_the_budget_is_kept(budget_s: float, seed: int) -> None:
    clock = FakeClock()
    speeds: dict[Depth, float] = dict.fromkeys((0, *ALL), 50.0)
    worker = FakeWorker(clock, speeds, seed=seed, compile_s=1.0)
    start = clock.now
    with suppress(InvalidRequestError):
        measure(worker, clock, ALL, budget_s=budget_s)
    assert clock.now - start <= budget_s


def test_of_too_many_depths_for_the_time_the_slowest_are_left_out() -> None:
    clock = FakeClock()
    speeds: dict[Depth, float] = {0: 50.0, 1: 60.0, 2: 66.0, 3: 75.0, 4: 66.0, 5: 60.0, 6: 55.0}
    worker = FakeWorker(clock, {**speeds, "auto": 62.0}, spread=0.5)
    measurement, judgement = measure(worker, clock, ALL, budget_s=28.0)
    assert judgement.winner == 3
    assert measurement.left_out[0] == 6
    assert 3 not in measurement.left_out
    assert measurement.rounds >= measurement.rounds_needed


def test_with_time_enough_no_depth_is_left_out() -> None:
    clock = FakeClock()
    speeds: dict[Depth, float] = {0: 50.0, 1: 60.0, 2: 75.0, 3: 66.0}
    measurement, _ = measure(FakeWorker(clock, speeds), clock, (1, 2, 3), budget_s=600.0)
    assert measurement.left_out == []


def test_the_warm_up_does_not_count() -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, {0: 50.0, 1: 65.0}, compile_s=20.0, spread=0.5)
    measurement, judgement = measure(worker, clock, (1,), budget_s=120.0)
    assert judgement.winner == 1
    plain, one = measurement.rows()
    assert plain.tok_s.median == pytest.approx(50.0, rel=0.02)
    assert plain.tok_s.low > 48.0
    assert one.gain is not None
    assert one.gain.median == pytest.approx(1.3, rel=0.03)
    counted = [tokens for _, tokens, _ in worker.asked if tokens == measurement.tokens]
    assert len(counted) == 2 * measurement.rounds


def test_ways_of_decoding_take_turns_on_prompts_that_take_turns() -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, {0: 50.0, 1: 65.0, "auto": 60.0})
    measure(worker, clock, (1, "auto"))
    warm_up = 2 * 3
    order = [(depth, prompt) for depth, _, prompt in worker.asked[warm_up:]]
    assert order[:6] == [(0, 1), (1, 1), ("auto", 1), (0, 3), (1, 3), ("auto", 3)]
    assert [prompt for depth, prompt in order if depth == 0][:6] == [1, 3, 6, 3, 1, 3]


def test_drift_of_the_machine_slows_all_alike_and_decides_nothing() -> None:
    clock = FakeClock()
    speeds: dict[Depth, float] = {0: 50.0, 1: 50.0}
    worker = FakeWorker(clock, speeds, spread=0.5)

    class Throttled(dict[Depth, float]):
        def __getitem__(self, depth: Depth) -> float:
            return float(speeds[depth] * 0.98 ** (len(worker.asked) / 4))

    worker.set_speeds(Throttled(speeds))
    _, judgement = measure(worker, clock, (1,))
    assert judgement.winner == 0
    assert judgement.gains[1].median == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("budget_s", [2.0, 8.0, 20.0])
def test_a_budget_that_is_too_short_is_refused_with_one_that_suffices(budget_s: float) -> None:
    speeds: dict[Depth, float] = dict.fromkeys((0, *ALL), 50.0)
    asked_for = [budget_s]
    while True:
        clock = FakeClock()
        worker = FakeWorker(clock, speeds, compile_s=0.5)
        try:
            measure(worker, clock, ALL, budget_s=asked_for[-1])
        except InvalidRequestError as error:
            asked_for.append(float(error.hint.partition("--budget ")[2].partition("s)")[0]))
        else:
            break
    assert 2 <= len(asked_for) <= 4
    assert sorted(set(asked_for)) == asked_for
    assert asked_for[-1] <= 200.0


def test_a_hopeless_budget_is_refused_soon() -> None:
    clock = FakeClock()
    speeds: dict[Depth, float] = dict.fromkeys((0, *ALL), 5.0)
    worker = FakeWorker(clock, speeds, spread=0.2)
    start = clock.now
    with pytest.raises(InvalidRequestError, match="do not suffice") as caught:
        measure(worker, clock, ALL, budget_s=200.0)
    assert caught.value.key == "budget"
    assert clock.now - start < 100.0


def test_loading_that_took_the_whole_budget_is_told_with_a_larger_one() -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, {0: 50.0, 1: 65.0})
    start = clock.now
    clock.sleep(100.0)
    measurement = Measurement(
        worker=worker, prompts=PROMPTS, depths=(1,), clock=clock, started=start, budget_s=60.0
    )
    with pytest.raises(InvalidRequestError, match="after 100 s") as caught:
        measurement.run()
    assert "--budget 200s" in caught.value.hint
    assert worker.asked == []


def test_text_that_differs_from_plain_decoding_is_noticed() -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, {0: 50.0, 1: 65.0, 2: 66.0}, texts={2: [7, 7, 7]})
    measurement, _ = measure(worker, clock, (1, 2))
    assert [row.text_equals_plain for row in measurement.rows()] == [True, True, False]


def test_acceptance_is_told_over_all_and_by_domain() -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, {0: 50.0, 2: 65.0}, kept={2: 0.5})
    measurement, _ = measure(worker, clock, (2,))
    plain, two = measurement.rows()
    assert plain.acceptance == ()
    assert two.acceptance == (0.5, 0.25)
    assert two.acceptance_by_domain == {"code": (0.5, 0.25), "chat": (0.5, 0.25)}


def test_nothing_is_shown_before_the_first_round() -> None:
    clock = FakeClock()
    seen: list[tuple[int, str]] = []

    def look(measurement: Measurement) -> None:
        seen.append((len(measurement.rows()), measurement.label))
        assert 0.0 <= measurement.fraction <= 1.0

    worker = FakeWorker(clock, {0: 50.0, 1: 65.0})
    measurement = Measurement(
        worker=worker,
        prompts=PROMPTS,
        depths=(1,),
        clock=clock,
        started=clock.now,
        budget_s=60.0,
        on_change=look,
    )
    measurement.run()
    assert seen[:2] == [(0, "plain on code"), (0, "depth 1 on code")]
    assert seen[-1][0] == 2
    assert len(seen) == len(worker.asked)
