"""Time to the first token on scripted measurers."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplx.contracts.errors import BackendError, InvalidRequestError, PromptTooLongError
from mtplx.runtime.bench.part import Options
from mtplx.runtime.bench.prefill import PrefillSettings, measure_prefill
from mtplx.runtime.bench.report import PrefillReport
from mtplx.runtime.bench.tasks import PrefillTask
from tests.support.benching import ScriptedMeasurer, use_measurers


def measure(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    settings: PrefillSettings,
    own: ScriptedMeasurer,
    stock: ScriptedMeasurer | Exception | None = None,
) -> PrefillReport:
    use_measurers(monkeypatch, lambda _folder, _bits: own, stock)
    return measure_prefill(
        folder, settings, Options(prefill_chunk=96), with_stock=stock is not None
    )


def test_every_length_and_chunk_is_read_by_all_in_turns(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own, stock = ScriptedMeasurer(), ScriptedMeasurer()
    settings = PrefillSettings(lengths=(200, 100), chunks=(64, 32), repeats=6)
    report = measure(monkeypatch, folder, settings, own, stock)
    asked = [task for task in own.asked if isinstance(task, PrefillTask)]
    assert [task.use_head for task in asked[:14]] == [False, True] * 7
    points = list(dict.fromkeys((len(task.prompt), task.chunk) for task in asked))
    assert points == [(100, 32), (100, 64), (200, 32), (200, 64)]
    assert [(row.length, row.chunk) for row in report.rows[::3]] == points
    assert [row.name for row in report.rows[:3]] == ["plain", "primed", "mlx-lm"]


def test_ratios_are_those_of_speed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    settings = PrefillSettings(lengths=(100,), repeats=6)
    report = measure(monkeypatch, folder, settings, ScriptedMeasurer(), ScriptedMeasurer())
    plain, primed, stock = report.rows
    assert plain.tok_s.median == pytest.approx(2000)
    assert plain.over_plain is None
    assert primed.over_plain is not None
    assert primed.over_plain.median == pytest.approx(0.5)
    assert stock.over_mlx_lm is None
    assert (plain.head_rest_s, primed.head_rest_s is not None) == (None, True)
    assert plain.chunk == 96


def test_mlx_lm_is_left_out_from_the_length_on_that_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    settings = PrefillSettings(lengths=(100, 200, 300), repeats=1)
    report = measure(
        monkeypatch, folder, settings, ScriptedMeasurer(), ScriptedMeasurer(longest=150)
    )
    assert [row.length for row in report.rows if row.name == "mlx-lm"] == [100]
    assert [row.length for row in report.rows if row.name == "plain"] == [100, 200, 300]
    assert [item.name for item in report.left_out] == ["mlx-lm from 200 tokens on"]


def test_mlx_lm_that_does_not_start_is_left_out(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    settings = PrefillSettings(lengths=(100,), repeats=1)
    report = measure(monkeypatch, folder, settings, ScriptedMeasurer(), BackendError("refused"))
    assert [item.reason for item in report.left_out] == ["refused"]


def test_usual_lengths_without_room_are_left_out_and_others_refused(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    report = measure(monkeypatch, folder, PrefillSettings(repeats=1), ScriptedMeasurer())
    assert {row.length for row in report.rows} == {128, 512, 2048}
    assert [item.name for item in report.left_out] == ["8192 tokens"]
    with pytest.raises(PromptTooLongError, match="8192"):
        measure(monkeypatch, folder, PrefillSettings(lengths=(128, 8192)), ScriptedMeasurer())


def test_without_a_head_there_is_nothing_to_prime(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    settings = PrefillSettings(lengths=(100,), repeats=1)
    report = measure(monkeypatch, folder, settings, ScriptedMeasurer(has_head=False))
    assert [row.name for row in report.rows] == ["plain"]
    assert report.left_out[0].name == "primed"


def test_settings_out_of_range_are_refused() -> None:
    for settings in ({"lengths": (0,)}, {"chunks": (0,)}, {"repeats": 0}):
        with pytest.raises(InvalidRequestError):
            PrefillSettings(**settings)
