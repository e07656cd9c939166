"""Speed on scripted measurers: turns, ratios, verdicts, and what is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mtplx.contracts.errors import BackendError, InvalidRequestError, PromptTooLongError
from mtplx.runtime.bench.part import Options, Sampling
from mtplx.runtime.bench.report import SpeedReport, SpeedRow
from mtplx.runtime.bench.speed import SpeedSettings, compare_speed, judge
from mtplx.runtime.bench.tasks import DecodeTask
from mtplx.runtime.tuning.statistics import simultaneous_confidence
from tests.support.benching import ScriptedMeasurer, Speeds, use_measurers

SETTINGS = SpeedSettings(depths=(1, 2), repeats=8, max_tokens=24)
# The first value is that of the warm-up, for each of the three prompts.
WARM_UP = [1e9] * 3


def compare(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    own: ScriptedMeasurer,
    stock: ScriptedMeasurer | Exception | None = None,
    settings: SpeedSettings = SETTINGS,
    options: Options | None = None,
) -> SpeedReport:
    use_measurers(monkeypatch, lambda _folder, _bits: own, stock)
    return compare_speed(folder, settings, options or Options(), with_stock=stock is not None)


def rows(report: SpeedReport) -> dict[str, SpeedRow]:
    return {row.name: row for row in report.parts[0].rows}


def steady(**speeds: float) -> Speeds:
    """Speeds by `d0`, `d1`, ...; the warm-up does not count."""
    return {int(name[1:]): [*WARM_UP, *[speed] * 24] for name, speed in speeds.items()}


def test_all_systems_take_turns_after_a_warm_up_that_does_not_count(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own, stock = ScriptedMeasurer(steady(d0=50, d1=60, d2=40)), ScriptedMeasurer(steady(d0=20))
    report = compare(monkeypatch, folder, own, stock)
    decoded = [task for task in own.asked if isinstance(task, DecodeTask)]
    assert [task.depth for task in decoded] == [0, 1, 2] * 3 * 9
    assert [task.max_tokens for task in decoded] == [16] * 9 + [24] * 72
    found = rows(report)
    assert list(found) == ["plain", "mtp-1", "mtp-2", "mlx-lm"]
    assert found["mtp-1"].tok_s.median == pytest.approx(60)
    assert found["mtp-1"].over_plain.median == pytest.approx(1.2)


def test_a_ratio_says_on_which_side_of_plain_decoding_it_surely_lies(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = ScriptedMeasurer(steady(d0=50, d1=60, d2=40))
    found = rows(compare(monkeypatch, folder, own))
    verdicts = {name: row.verdict for name, row in found.items()}
    assert verdicts == {"plain": None, "mtp-1": "faster", "mtp-2": "slower"}


def test_too_few_repeats_leave_it_open_and_say_so(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = ScriptedMeasurer(steady(d0=50, d1=60, d2=40))
    settings = SpeedSettings(depths=(1, 2), repeats=6, max_tokens=24)
    report = compare(monkeypatch, folder, own, settings=settings)
    assert report.repeats_needed == 7
    assert {row.verdict for row in rows(report).values()} == {None, "open"}
    assert any("6 repeats cannot tell" in warning for warning in report.warnings)


def test_of_equal_systems_few_are_told_apart() -> None:
    rng, confidence, wrong = np.random.default_rng(1), simultaneous_confidence(5), 0
    tables, repeats = 150, 9
    for _ in range(tables):
        base = rng.normal(50, 3, repeats)
        others = rng.normal(50, 3, (5, repeats))
        wrong += any(judge(list(own), list(base), confidence) != "open" for own in others)
    # Of 150 tables 5 % are 7.5; more than 14 come by chance in fewer than one of 100 runs.
    assert wrong <= 14


@pytest.mark.parametrize("ratio", [0.85, 1.2])
def test_systems_that_differ_are_told_apart_nearly_always(ratio: float) -> None:
    rng, told = np.random.default_rng(2), 0
    for _ in range(40):
        base, own = rng.normal(50, 3, 9), rng.normal(50 * ratio, 3, 9)
        told += judge(list(own), list(base), 0.99) == ("faster" if ratio > 1 else "slower")
    assert told >= 28


def test_drift_that_slows_all_alike_cancels(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    drift = [float(100 - 3 * step) for step in range(24)]
    own = ScriptedMeasurer({0: [*WARM_UP, *drift], 1: [*WARM_UP, *(1.3 * v for v in drift)]})
    settings = SpeedSettings(depths=(1,), repeats=8, max_tokens=24)
    row = rows(compare(monkeypatch, folder, own, settings=settings))["mtp-1"]
    assert (row.over_plain.low, row.over_plain.high) == pytest.approx((1.3, 1.3))
    assert row.tok_s.high - row.tok_s.low > 10


def test_mlx_lm_that_refuses_the_model_is_reported(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    refusal = BackendError("stock ended with code 1: ValueError: not this one")
    report = compare(monkeypatch, folder, ScriptedMeasurer(), refusal)
    assert [(item.name, item.reason) for item in report.left_out] == [("mlx-lm", refusal.message)]
    assert "mlx-lm" not in rows(report)
    assert all(row.over_mlx_lm is None for row in rows(report).values())


def test_mlx_lm_that_dies_on_a_prompt_is_reported_and_the_rest_measured(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    report = compare(monkeypatch, folder, ScriptedMeasurer(), ScriptedMeasurer(longest=10))
    assert report.left_out[0].name == "mlx-lm"
    assert "too long" in report.left_out[0].reason
    assert list(rows(report)) == ["plain", "mtp-1", "mtp-2"]


def test_without_a_head_depths_are_left_out_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    report = compare(monkeypatch, folder, ScriptedMeasurer(has_head=False))
    assert list(rows(report)) == ["plain"]
    assert report.left_out[0].name == "mtp-1, mtp-2"
    assert "no MTP head" in report.left_out[0].reason


def test_another_text_than_plain_decoding_gives_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = ScriptedMeasurer(texts={2: 5})
    report = compare(monkeypatch, folder, own)
    assert set(rows(report)["mtp-2"].text_equals_plain.values()) == {False}
    assert any(warning.startswith("the text of mtp-2 differs") for warning in report.warnings)
    sampled = SpeedSettings(
        depths=(1, 2), repeats=1, max_tokens=24, sampling=Sampling(temperature=1.0)
    )
    block = Options(acceptance="block")
    quiet = compare(
        monkeypatch, folder, ScriptedMeasurer(texts={2: 5}), settings=sampled, options=block
    )
    assert not any("differs" in warning for warning in quiet.warnings)


def test_a_context_is_a_part_of_its_own_behind_the_suite(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = ScriptedMeasurer()
    settings = SpeedSettings(depths=(1,), contexts=(700, 300), repeats=1, max_tokens=24)
    report = compare(monkeypatch, folder, own, settings=settings)
    assert [part.context for part in report.parts] == [None, 300, 700]
    assert report.parts[2].prompt_tokens == {"code-1": 700}


def test_a_context_without_room_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    settings = SpeedSettings(contexts=(4090,), repeats=1, max_tokens=24)
    with pytest.raises(PromptTooLongError, match="4090 tokens and 24 after them"):
        compare(monkeypatch, folder, ScriptedMeasurer(), settings=settings)
    settings = SpeedSettings(repeats=1, max_tokens=5000)
    with pytest.raises(PromptTooLongError, match="5000 after them"):
        compare(monkeypatch, folder, ScriptedMeasurer(), settings=settings)


def test_options_and_sampling_reach_every_system(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own, stock = ScriptedMeasurer(), ScriptedMeasurer()
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=20, seed=3)
    settings = SpeedSettings(depths=("auto",), repeats=1, max_tokens=24, sampling=sampling)
    options = Options(profile="turbo", acceptance="block", prefill_chunk=1024, kv_bits=8)
    report = compare(monkeypatch, folder, own, stock, settings, options)
    for task in (task for task in (*own.asked, *stock.asked) if isinstance(task, DecodeTask)):
        assert (task.temperature, task.top_p, task.top_k, task.seed) == (0.7, 0.9, 20, 3)
        assert (task.acceptance, task.prefill_chunk) == ("block", 1024)
    assert report.conditions.options == options
    assert any("kv_bits 8 concerns mtplx alone" in warning for warning in report.warnings)
    assert [row.name for row in report.parts[0].rows] == ["plain", "mtp-auto", "mlx-lm"]


def test_rows_count_rounds_drafts_and_memory(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    row = rows(compare(monkeypatch, folder, ScriptedMeasurer()))["mtp-2"]
    assert row.tokens_per_round == pytest.approx(23 / 12)
    assert row.acceptance == (1.0, 0.0)
    assert set(row.acceptance_by_domain) == {"code", "prose", "chat"}
    assert row.peak_bytes == 1002
    assert row.ttft_s.median == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("key", "value"), [("prompts", 0), ("prompts", 11), ("repeats", 0), ("max_tokens", 1)]
)
def test_settings_out_of_range_are_refused(key: str, value: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"{key} is {value}") as caught:
        SpeedSettings(**{key: value})  # type: ignore[arg-type]  # the key is a parameter of the test
    assert caught.value.key == key
