"""The table of speeds in the README is the one that the script makes of the reports that are kept."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mtplx.runtime.bench.part import Conditions, Interval, LeftOut, Options, Sampling
from mtplx.runtime.bench.report import SpeedPart, SpeedReport, SpeedRow
from tests.support.checkpoints import REPOSITORY

SCRIPT = REPOSITORY / "docs" / "speed_table.py"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("speed_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["speed_table"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["speed_table"]


def row(name: str, ratio: float, verdict: str | None, *, equal: bool = True) -> SpeedRow:
    over = Interval(median=ratio, low=ratio - 0.1, high=ratio + 0.1)
    return SpeedRow(
        name=name,
        tok_s=Interval(median=100 * ratio, low=90 * ratio, high=110 * ratio),
        tok_s_by_repeat=(100 * ratio,),
        tok_s_by_domain={"code": 100 * ratio},
        over_plain=over,
        over_mlx_lm=Interval(median=2 * ratio, low=2 * ratio, high=2 * ratio),
        verdict=verdict,  # type: ignore[arg-type]  # a literal that the table spells out
        ttft_s=Interval(median=0.1, low=0.1, high=0.1),
        peak_bytes=1,
        tokens_per_round=1.0,
        acceptance=(0.9, 0.75) if name == "mtp-2" else (),
        acceptance_by_domain={},
        text_equals_plain={"code-1": equal},
    )


def speed_report(*rows: SpeedRow, **changes: Any) -> SpeedReport:
    conditions: dict[str, Any] = {
        "model": "demo",
        "identity": "0" * 64,
        "family": "mimo",
        "tier": "ar-only",
        "head": "none",
        "weight_bytes": 16_000_000,
        "started": "2026-01-01T00:00:00Z",
        "ended": "2026-01-01T00:01:00Z",
        "platform": "Linux",
        "processor": "x86_64",
        "cores": 2,
        "memory_gib": 4.0,
        "device": "cpu",
        "back_end": "cpu",
        "chip": "cpu",
        "blas": "mkl",
        "dtypes": ["float32"],
        "versions": {"mlx": "1"},
        "load_start": (0.1, 0.0, 0.0),
        "load_end": (2.0, 0.0, 0.0),
        "other_cores": 0.1,
        "busy": changes.pop("busy", None),
        "options": Options(),
    }
    return SpeedReport(
        conditions=Conditions(**conditions),
        left_out=changes.pop("left_out", ()),
        warnings=(),
        repeats=9,
        repeats_needed=8,
        confidence=0.99,
        max_tokens=128,
        sampling=Sampling(),
        parts=(SpeedPart(context=None, prompt_tokens={"code-1": 9}, rows=rows),),
    )


def test_the_readme_has_the_table_of_the_kept_reports(script: ModuleType) -> None:
    readme = script.README.read_text(encoding="utf-8")
    wanted = script.table(script.read_reports(script.MEASURED))
    assert script.replace_table(readme, wanted) == readme


def test_every_system_has_a_cell_losing_ones_included(script: ModuleType) -> None:
    report = speed_report(
        row("plain", 1.0, None),
        row("mtp-1", 1.3, "faster"),
        row("mtp-2", 0.8, "slower"),
        row("mtp-auto", 1.05, "open"),
        row("mlx-lm", 0.5, "slower", equal=False),
    )
    lines = script.table([report]).splitlines()
    line = next(line for line in lines if line.startswith("| demo"))
    assert line == (
        "| demo (16 MB) | 100 | **1.30** (1.20 to 1.40) | *0.80* (0.70 to 0.90) | 1.05 (0.95 to 1.15) "
        "| *0.50* (0.40 to 0.60) | 2.60 (2.60 to 2.60) (mtp-1) | 0.90 0.75 |"
    )
    assert "* demo: the text differs from that of plain decoding with mlx-lm" in lines


def test_refusals_and_a_busy_machine_are_told(script: ModuleType) -> None:
    report = speed_report(
        row("plain", 1.0, None).model_copy(update={"over_mlx_lm": None}),
        left_out=(LeftOut(name="mlx-lm", reason=f"ValueError: float32 only {'x ' * 200}"),),
        busy="others worked",
    )
    text = script.table([report])
    assert "* demo: mlx-lm was left out: ValueError: float32 only x" in text
    assert max(map(len, text.splitlines())) < 400
    assert "**The machine was busy for demo.**" in text
    assert "| refused | - | - |" in text


def test_models_with_other_systems_share_one_table(script: ModuleType) -> None:
    first = speed_report(row("plain", 1.0, None), row("mtp-1", 1.3, "faster"))
    second = speed_report(row("plain", 1.0, None), row("mtp-2", 1.1, "open"))
    lines = [line for line in script.table([first, second]).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    assert "mtp-1 over plain | mtp-2 over plain" in lines[0]


def test_reports_survive_the_file_they_are_kept_in(script: ModuleType, tmp_path: Path) -> None:
    report = speed_report(row("plain", 1.0, None))
    kept = tmp_path / "measured.json"
    kept.write_bytes(script.REPORTS.dump_json([report]))
    assert script.read_reports(kept) == [report]
    assert script.read_reports(tmp_path / "none.json") == []


def test_nothing_but_the_table_is_replaced(script: ModuleType) -> None:
    readme = f"before\n{script.BEGIN}\nold\n{script.END}\nafter\n"
    found = script.replace_table(readme, "new\n")
    assert found == f"before\n{script.BEGIN}\nnew\n{script.END}\nafter\n"
    with pytest.raises(SystemExit, match=r"README\.md has no lines"):
        script.replace_table("nothing", "new\n")
