"""v, c and o from scripted times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mtplx.contracts.errors import InvalidRequestError, PromptTooLongError
from mtplx.runtime.bench.part import Options
from mtplx.runtime.bench.tasks import CostsTask, RoundTimes
from mtplx.runtime.bench.verify_cost import VerifyCostSettings, measure_costs, to_part
from tests.support.benching import ScriptedMeasurer, use_measurers


def times(drift: float = 1.0, noise: float = 0.0) -> RoundTimes:
    """v = 1, 1.5, 2; a draft costs 0.25 and a round 0.1 beside its forward and its drafts."""
    verify = [0.02, 0.03, 0.04]
    drafts = [0.005, 0.010]
    rounds = [0.022, 0.037, 0.052]
    return RoundTimes(
        *([drift * (value + noise) for value in each] for each in (verify, drafts, rounds))
    )


def test_costs_are_in_forwards_over_one_row() -> None:
    part = to_part(128, [times() for _ in range(6)])
    assert [cost.v.median for cost in part.verify] == pytest.approx([1.0, 1.5, 2.0])
    assert [cost.c.median for cost in part.drafts] == pytest.approx([0.25, 0.5])
    assert [cost.c_per_draft for cost in part.drafts] == pytest.approx([0.25, 0.25])
    assert [cost.o.median for cost in part.rounds] == pytest.approx([0.1, 0.1, 0.1])
    assert [cost.rows for cost in part.verify] == [1, 2, 3]
    assert [cost.depth for cost in part.rounds] == [0, 1, 2]


def test_drift_between_repeats_cancels_in_ratios_and_shows_in_seconds() -> None:
    part = to_part(128, [times(drift) for drift in (1.0, 1.5, 2.0, 2.5, 3.0)])
    assert part.verify[1].v.high == pytest.approx(part.verify[1].v.low)
    assert part.verify[1].seconds.high > 1.5 * part.verify[1].seconds.low


def test_an_interval_holds_the_truth_under_noise() -> None:
    rng = np.random.default_rng(3)
    noisy = [
        RoundTimes([0.02 * rng.normal(1, 0.05), 0.03 * rng.normal(1, 0.05)], [], [0.021])
        for _ in range(41)
    ]
    v = to_part(128, noisy).verify[1].v
    assert v.low < 1.5 < v.high
    assert v.high - v.low < 0.2


def test_every_context_is_measured_and_the_report_says_how(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = ScriptedMeasurer()
    use_measurers(monkeypatch, lambda _folder, _bits: own)
    settings = VerifyCostSettings(rows=6, depth=2, contexts=(300, 200), repeats=5)
    report = measure_costs(folder, settings, Options(prefill_chunk=64))
    asked = [task for task in own.asked if isinstance(task, CostsTask)]
    assert [len(task.prompt) for task in asked] == [200] * 5 + [300] * 5
    assert {(task.rows, task.depth, task.chunk) for task in asked} == {(6, 2, 64)}
    assert [part.context for part in report.parts] == [200, 300]
    assert any("5 repeats cannot carry" in warning for warning in report.warnings)


def test_without_a_head_forwards_are_measured_and_drafts_left_out(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = ScriptedMeasurer(has_head=False)
    use_measurers(monkeypatch, lambda _folder, _bits: own)
    report = measure_costs(folder, VerifyCostSettings(repeats=6), Options())
    (part,) = report.parts
    assert (len(part.verify), len(part.drafts), len(part.rounds)) == (16, 0, 1)
    assert "no MTP head" in report.left_out[0].reason


def test_the_rounds_themselves_need_room(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    use_measurers(monkeypatch, lambda _folder, _bits: ScriptedMeasurer())
    settings = VerifyCostSettings(contexts=(4000,))
    assert settings.tokens_taken == 2 * 4 * 16 + 17
    with pytest.raises(PromptTooLongError, match="4000 tokens and 145 after them"):
        measure_costs(folder, settings, Options())


@pytest.mark.parametrize(("key", "value"), [("rows", 1), ("rows", 65), ("depth", 0), ("depth", 9)])
def test_settings_out_of_range_are_refused(key: str, value: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"{key} is {value}"):
        VerifyCostSettings(**{key: value})  # type: ignore[arg-type]  # the key is a parameter of the test


def test_a_round_verifies_no_more_rows_than_are_measured() -> None:
    with pytest.raises(InvalidRequestError, match="depth is 4, expected 1 to 3"):
        VerifyCostSettings(rows=4, depth=4)
