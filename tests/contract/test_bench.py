"""`mtplx bench`: every subcommand on a small model, its report against the shipped schema, its errors."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from mtplx.kernels.backend import ensure_backend
from mtplx.main import execute
from mtplx.runtime.bench import report
from tests.conftest import TinyFactory
from tests.support.benching import LocalMeasurer, ScriptedMeasurer, use_measurers

COMMANDS: dict[str, list[str]] = {
    "speed": ["--depths", "1,auto", "--repeats", "1", "--max-tokens", "8"],
    "verify-cost": ["--rows", "3", "--depth", "2", "--repeats", "2", "--context", "40"],
    "accept": ["--prompts", "1", "--depth", "2", "--max-tokens", "8"],
    "prefill": ["--lengths", "40", "--chunks", "16,64", "--repeats", "1"],
    "memory": ["--context", "40", "--kv-bits", "off,8", "--max-tokens", "4"],
}
SCRIPTED: dict[str, list[str]] = {
    **{name: ["--repeats", "1"] for name in ("speed", "verify-cost", "prefill")},
    "accept": ["--prompts", "1"],
    "memory": ["--kv-bits", "off"],
}


@pytest.fixture
def folder(shared_tiny: TinyFactory) -> str:
    return str(shared_tiny("mimo", vocab=64, hidden=64))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedMeasurer:
    """Benchmarks of this test measure nothing."""
    own = ScriptedMeasurer()
    use_measurers(monkeypatch, lambda _folder, _bits: own, ScriptedMeasurer())
    return own


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The report that a command prints with --json."""
    assert execute(["bench", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    jsonschema.validate(found, report.shipped_schema())
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_is_really_measured(
    command: str, folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_measurers(monkeypatch, LocalMeasurer)
    found = run(capsys, command, "--model", folder, *COMMANDS[command])
    assert (found["kind"], found["schema_version"]) == (command, 1)
    assert found["left_out"] == []
    conditions = found["conditions"]
    assert conditions["family"] == "mimo"
    assert len(conditions["identity"]) == 64
    assert conditions["started"] < conditions["ended"]
    assert set(conditions["versions"]) == {"python", "mtplx", "mlx", "mlx-lm", "numpy"}
    assert len(conditions["load_start"]) == len(conditions["load_end"]) == 3


def test_speed_is_measured_in_real_processes_beside_mlx_lm(
    shared_tiny: TinyFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(shared_tiny("mimo", vocab=64, hidden=64))
    arguments = ["--depths", "2", "--repeats", "1", "--max-tokens", "6", "--compare", "mlx-lm"]
    found = run(capsys, "speed", "--model", folder, *arguments)
    assert found["left_out"] == []
    rows = {row["name"]: row for row in found["parts"][0]["rows"]}
    assert set(rows) == {"plain", "mtp-2", "mlx-lm"}
    assert all(rows["mtp-2"]["text_equals_plain"].values())
    assert all(row["tok_s"]["median"] > 0 and row["peak_bytes"] > 0 for row in rows.values())
    assert rows["mlx-lm"]["over_plain"]["median"] > 0
    # The process bound the BLAS that a model is always loaded with, before anything imported mlx.
    blas = ensure_backend().blas
    assert found["conditions"]["blas"] == (blas.name if blas else None)
    assert not any("imported before" in warning for warning in found["warnings"])


@pytest.mark.parametrize("command", SCRIPTED)
def test_a_report_is_shown_for_reading_and_kept_in_a_file(
    command: str,
    folder: str,
    scripted: ScriptedMeasurer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "report.json"
    arguments = ["bench", command, "--model", folder, *SCRIPTED[command], "--out", str(out)]
    assert execute(arguments) == 0
    shown = capsys.readouterr().out
    assert "Conditions" in shown
    assert "left out" in shown or command in ("speed", "verify-cost", "accept")
    assert scripted.asked
    kept = json.loads(out.read_text(encoding="utf-8"))
    jsonschema.validate(kept, report.shipped_schema())
    assert kept["kind"] == command


@pytest.mark.parametrize("command", ["speed", "prefill", "memory"])
def test_mlx_lm_is_a_row_of_its_own(
    command: str, folder: str, scripted: ScriptedMeasurer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        execute(["bench", command, "--model", folder, *SCRIPTED[command], "--compare", "mlx-lm"])
        == 0
    )
    assert "\n  mlx-lm " in capsys.readouterr().out
    assert scripted.asked


def test_the_table_names_every_system_and_what_it_gained(
    folder: str, scripted: ScriptedMeasurer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["bench", "speed", "--model", folder, "--repeats", "1", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert scripted.asked
    lines = out.splitlines()
    assert lines[0] == "Decoding speed, 3 prompts, 128 tokens each, greedy, 1 repeats"
    assert [line.split()[0] for line in lines[2:8]] == [
        "plain",
        "mtp-1",
        "mtp-2",
        "mtp-3",
        "mtp-4",
        "mtp-auto",
    ]
    assert "1.00 (1.00 to 1.00)" in lines[3]
    assert all(line.endswith("same") for line in lines[2:8])


def test_a_text_that_differs_is_seen_in_its_line(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_measurers(monkeypatch, lambda _folder, _bits: ScriptedMeasurer(texts={1: 7}))
    arguments = ["bench", "speed", "--model", folder, "--repeats", "1", "--depths", "1,2"]
    assert execute(arguments) == 0
    out, err = capsys.readouterr()
    assert [line.endswith("differs") for line in out.splitlines()[2:5]] == [False, True, False]
    assert "warning: the text of mtp-1 differs" in err


def test_a_profile_sets_the_options_and_the_report_says_so(
    folder: str, scripted: ScriptedMeasurer, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(
        capsys, "speed", "--model", folder, "--repeats", "1", "--profile", "turbo", "--depths", "1"
    )
    assert scripted.asked
    assert found["conditions"]["options"] == {
        "profile": "turbo",
        "acceptance": "block",
        "prefill_chunk": 1024,
        "kv_bits": None,
    }


def test_a_busy_machine_is_warned_about_where_time_is_measured(
    folder: str,
    scripted: ScriptedMeasurer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    worked = itertools.count(step=1000)
    monkeypatch.setattr("psutil.cpu_times", lambda: SimpleNamespace(user=float(next(worked))))
    assert execute(["bench", "speed", "--model", folder, "--repeats", "1"]) == 0
    warning = "the machine was busy: other processes kept"
    assert f"warning: {warning}" in capsys.readouterr().err
    found = run(capsys, "accept", "--model", folder, "--prompts", "1")
    assert not any(warning in told for told in found["warnings"])
    assert found["conditions"]["other_cores"] > 1
    assert "cores busy" in found["conditions"]["busy"]
    assert scripted.asked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed", "--depths", "0,1"], "--depths: expected numbers from 1 to 8 or auto"),
        (["speed", "--depths", "9"], "found '9'"),
        (["speed", "--prompts", "11"], "prompts is 11, expected 1 to 10"),
        (["speed", "--top-p", "0"], "--top-p is 0.0, expected greater than 0"),
        (["speed", "--context", "4096"], "4096 tokens and 128 after them do not fit"),
        (["speed", "--context", "a"], "--context: expected whole numbers above 0"),
        (["speed", "--profile", "fast"], "profile"),
        (["verify-cost", "--rows", "1"], "rows is 1, expected 2 to 64"),
        (["verify-cost", "--context", "0"], "found '0'"),
        (["accept", "--temperature", "0"], "temperature is 0"),
        (["accept", "--seed", "-1"], "--seed is -1"),
        (["prefill", "--lengths", "99999"], "99999 tokens and 1 after them do not fit"),
        (["prefill", "--chunks", "1.5"], "--chunks: expected whole numbers above 0"),
        (["memory", "--kv-bits", "7"], "--kv-bits: expected 2, 3, 4, 5, 6, 8 or off"),
        (["memory", "--context", "5000"], "5000 tokens and 16 after them do not fit"),
        (["speed", "--out", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
        (["speed", "--compare", "other"], "mlx-lm"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_measured_is_refused_by_name(
    arguments: list[str],
    message: str,
    folder: str,
    scripted: ScriptedMeasurer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["bench", *arguments, "--model", folder]) == 2
    assert message in capsys.readouterr().err
    assert not [task for task in scripted.asked if hasattr(task, "prompt")]


def test_a_model_without_head_is_measured_plainly(
    shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_measurers(monkeypatch, LocalMeasurer)
    folder = str(shared_tiny("llama", vocab=64))
    found = run(capsys, "speed", "--model", folder, *COMMANDS["speed"])
    assert [row["name"] for row in found["parts"][0]["rows"]] == ["plain"]
    assert [item["name"] for item in found["left_out"]] == ["mtp-1, mtp-auto"]
    assert execute(["bench", "accept", "--model", folder]) == 6
    assert "no MTP head" in capsys.readouterr().err


def test_the_shipped_schema_is_current() -> None:
    path = Path(report.__file__).with_name(report.SCHEMA_NAME)
    assert path.read_text(encoding="utf-8") == report.schema_text()
    assert "version 1" in report.shipped_schema()["title"]


def test_the_schema_refuses_what_is_no_report() -> None:
    for wrong in ({}, {"kind": "speed"}, {"kind": "dance", "schema_version": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, report.shipped_schema())
