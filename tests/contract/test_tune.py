"""`mtplx tune`, and what `run` and `chat` make of its result."""

from __future__ import annotations

import io
import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mtplx
from mtplx.commands import tune_view
from mtplx.contracts.folders import state_folder
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.demo import demo_model_path
from mtplx.main import execute
from mtplx.runtime.decode.depth import Costs
from mtplx.runtime.tuning import statistics
from mtplx.runtime.tuning import tune as tuning_module
from mtplx.runtime.tuning.conditions import Conditions, chip_name, read_conditions
from mtplx.runtime.tuning.record import Depth, KnownCosts, TuningRecord
from mtplx.runtime.tuning.store import NAME, TuningStore, signature
from mtplx.screen import Screen
from mtplx.tuned import use_tuning
from tests.conftest import TinyFactory
from tests.support.fake_model import FakeModel
from tests.support.fake_tuning import FakeClock, FakeWorker, a_record

FAST: dict[Depth, float] = {0: 50.0, 1: 65.0, 3: 30.0}


class TunableModel(FakeModel):
    """A scripted model of the demo model's folder."""

    known_costs: Costs | None = None

    @property
    def inspection(self) -> Inspection:
        return inspect_folder(demo_model_path())

    @property
    def path(self) -> Path:
        return demo_model_path()

    @property
    def kv_bits(self) -> int | None:
        bits: int | None = self.load_arguments["kv_bits"]
        return bits


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    """Takes the place of the process that decodes; its clock is no other's, so that the budget lasts."""
    found = FakeWorker(FakeClock(), FAST)
    monkeypatch.setattr(statistics, "RESAMPLES", 300)
    monkeypatch.setattr(
        tuning_module, "Worker", lambda _module, folder, *_bits: found.open(folder, None)
    )
    return found


@pytest.fixture
def saved() -> Callable[..., TuningRecord]:
    """Saves a result for the scripted model."""

    def save(depth: Depth = 3, **changes: str | int | None) -> TuningRecord:
        inspection = inspect_folder(demo_model_path())
        here: Conditions = read_conditions(inspection, FakeModel().device, chip_name(), None)
        record = a_record(depth=depth, conditions={**here, **changes})
        TuningStore.of_this_user().save(record, inspection, signature(inspection))
        return record

    return save


Saved = Callable[..., TuningRecord]


def tune(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = execute(["tune", "--depths", "1,3", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, dict[str, Any], str]:
    """The depth that the model was asked for, the report in the JSON, and what the screen says."""
    model = TunableModel()
    assert execute(["run", "hi", *arguments], load=model.load) == 0
    err = capsys.readouterr().err
    assert execute(["run", "hi", "--json", *arguments], load=model.load) == 0
    out, nothing = capsys.readouterr()
    assert nothing == ""
    depths = {options.get("depth") for _, options in model.calls}
    (depth,) = depths
    return depth, json.loads(out)["tuning"], err


# The command


@pytest.mark.usefixtures("worker")
def test_the_result_is_shown_and_saved(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = tune(capsys)
    assert code == 0
    assert out.startswith("Tuning of demo-model\n")
    assert "fastest    depth 1 is 1." in out
    assert "run and chat use it" in out
    assert "then dropped" in out
    assert "bundled demo model" in err
    (kept,) = TuningStore.of_this_user().read().records.values()
    assert kept.depth == 1
    assert (state_folder() / NAME).stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("worker")
def test_a_second_time_it_is_known(capsys: pytest.CaptureFixture[str], worker: FakeWorker) -> None:
    tune(capsys)
    worker.asked.clear()
    code, out, _ = tune(capsys)
    assert (code, worker.asked) == (0, [])
    assert "--retune measures again" in out
    assert tune(capsys, "--retune")[0] == 0
    assert worker.asked


@pytest.mark.usefixtures("worker")
def test_json_is_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = tune(capsys, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["depth"], found["is_saved"], found["plot_error"]) == (1, True, None)
    assert [row["depth"] for row in found["rows"]] == [0, 1, 3]
    assert found["costs"]["v"] == [1.0, 1.1, 1.3, 1.5, 1.7]
    assert found["conditions"]["chip"] == "A chip"


@pytest.mark.usefixtures("worker")
def test_quiet_shows_the_result_only(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = tune(capsys, "--quiet")
    assert (code, err) == (0, "")
    assert "depth 1" in out


class Terminal(io.StringIO):
    """A terminal that keeps what is drawn."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("worker")
def test_a_terminal_shows_a_table_that_grows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(tune_view, "_INTERVAL_S", 0.0)
    monkeypatch.setattr(tune_view, "_ROWS_INTERVAL_S", 0.0)
    assert tune(capsys)[0] == 0
    shown = terminal.getvalue()
    assert "of the time, depth 1 on prose" in shown
    assert "over plain" in shown
    assert "then dropped" in shown
    assert shown.index("of the time, plain on code") < shown.index("depth 1")


@pytest.mark.usefixtures("worker")
def test_a_log_file_gets_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtplx.progress.PLAIN_INTERVAL_S", 0.0)
    _, _, err = tune(capsys)
    assert re.search(r"^depth 3 on chat: \d+%$", err, re.MULTILINE)


@pytest.mark.usefixtures("worker")
def test_no_save_says_so_and_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tune(capsys, "--no-save")
    assert (code, "not saved" in out) == (0, True)
    assert not state_folder().exists()


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("as_json", [True, False])
def test_a_result_that_cannot_be_saved_is_shown_and_ends_with_the_code(
    as_json: bool, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    (home / "state").touch()
    code, out, err = tune(capsys, "--quiet", *(["--json"] if as_json else []))
    assert code == 2
    if as_json:
        assert err == ""
        assert json.loads(out)["depth"] == 1
        assert json.loads(out)["save_error"]["exit_code"] == 2
    else:
        assert "depth 1 is 1." in out
        assert "cannot be written" in err


@pytest.mark.usefixtures("worker")
def test_a_damaged_store_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    state_folder().mkdir()
    (state_folder() / NAME).write_text("{")
    code, _, err = tune(capsys)
    assert code == 0
    assert "warning: The tuning results in" in err
    (aside,) = state_folder().glob("tuning.damaged-*")
    assert str(aside) in err


@pytest.mark.usefixtures("worker")
def test_a_picture_is_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "tune.svg"
    assert tune(capsys, "--plot", str(file))[0] == 0
    assert "tokens a second" in file.read_text()


@pytest.mark.usefixtures("worker")
def test_a_picture_that_fails_costs_no_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, worker: FakeWorker
) -> None:
    file = tmp_path / "tune.svg"
    opened = worker.open

    def in_the_way(folder: Path, bits: int | None) -> Any:
        file.mkdir()
        return opened(folder, bits)

    # As if another process had made it.
    worker.open = in_the_way  # type: ignore[method-assign, assignment]
    code, out, err = tune(capsys, "--plot", str(file), "--json")
    assert (code, err) == (2, "")
    found = json.loads(out)
    assert (found["depth"], found["is_saved"]) == (1, True)
    assert "cannot be written" in found["plot_error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--depths", "0"], "depths is []"),
        (["--depths", "9"], "'9'"),
        (["--depths", "3-1"], "'3-1'"),
        (["--depths", "1,,2"], "''"),
        (["--domains", "code,verse"], "domains is ['code', 'verse']"),
        (["--budget", "soon"], "'soon'"),
        (["--budget", "0s"], "budget is 0.0"),
        (["--budget", "nan"], "budget is nan"),
        (["--budget", "25h"], "1 second to 1 day"),
        (["--kv-bits", "7"], "kv_bits"),
        (["--plot", "tune.pdf"], "'.pdf'"),
        (["--plot", "none/tune.png"], "does not exist"),
    ],
)
def test_a_wrong_command_line_measures_nothing(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], worker: FakeWorker
) -> None:
    assert execute(["tune", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, worker.asked) == ("", [])
    assert words in err


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("budget", ["90", "90s", "1.5m", "0.025h"])
def test_times_have_units(
    budget: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    real: Any = vars(tuning_module)["Measurement"]

    def measurement(**arguments: Any) -> Any:
        seen.append(arguments["budget_s"])
        return real(**arguments)

    monkeypatch.setattr(tuning_module, "Measurement", measurement)
    assert tune(capsys, "--budget", budget)[0] == 0
    assert seen == [pytest.approx(90.0)]


@pytest.mark.usefixtures("worker")
def test_the_kv_cache_of_flag_and_settings_is_tuned_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, _ = tune(capsys, "--json", "--kv-bits", "8")
    assert json.loads(out)["conditions"]["kv_bits"] == 8
    monkeypatch.setenv("MTPLX_KV_BITS", "4")
    _, out, _ = tune(capsys, "--json")
    assert json.loads(out)["conditions"]["kv_bits"] == 4
    assert len(TuningStore.of_this_user().read().records) == 2


def test_a_model_without_a_head_has_nothing_to_tune(
    capsys: pytest.CaptureFixture[str], shared_tiny: TinyFactory
) -> None:
    code, out, err = tune(capsys, "--model", str(shared_tiny("qwen3_5", head=False)))
    assert (code, out) == (6, "")
    assert "no MTP head" in err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["tune", "--help"]) == 0
    out = capsys.readouterr().out
    assert out.count("Example: mtplx tune") == 3
    for flag in ("--budget", "--retune", "--no-save", "--plot", "--json", "--quiet", "--kv-bits"):
        assert flag in out


# What run and chat make of it


def test_run_uses_the_tuned_depth_and_says_so(
    saved: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(3)
    depth, report, err = run(capsys)
    assert depth == 3
    assert "note: using what was tuned on 2026-01-02: 3 is fastest" in err
    assert (report["status"], report["depth"]) == ("used", 3)
    assert report["time"].startswith("2026-01-02T03:04")


def test_run_decodes_plainly_where_that_is_fastest(
    saved: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(0)
    depth, report, err = run(capsys)
    assert (depth, report["status"]) == (0, "used")
    assert "plain decoding: 0 is fastest" in err


def test_who_insists_on_mtp_does_not_get_plain_decoding(
    saved: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(0)
    depth, report, _ = run(capsys, "--mtp")
    assert (depth, report["status"], report["by"]) == ("auto", "overridden", "the flag --mtp")
    saved(3)
    assert run(capsys, "--mtp")[0] == 3


def test_chat_uses_the_tuned_depth_and_says_so(
    saved: Saved, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(2)
    model = TunableModel()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n"), encoding="utf-8"))
    assert execute(["chat"], load=model.load) == 0
    assert model.calls[0][1]["depth"] == 2
    assert "using what was tuned on" in capsys.readouterr().err


def in_file(home: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    del monkeypatch
    tomllib.loads(text)
    (home / "config.toml").write_text(text)


def in_environment(home: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    del home
    monkeypatch.setenv(*text.split("="))


@pytest.mark.parametrize(
    ("how", "text", "flags", "depth", "by"),
    [
        (None, "", ["--depth", "1"], 1, "flag --depth"),
        (None, "", ["--depth", "auto"], "auto", "flag --depth"),
        (None, "", ["--no-mtp"], "auto", "the flag --no-mtp"),
        (None, "", ["--profile", "stable"], 1, "the profile stable"),
        (None, "", ["--profile", "turbo"], "auto", "the profile turbo"),
        (in_file, "depth = 1\n", [], 1, "config.toml"),
        (in_file, 'depth = "auto"\n', [], "auto", "config.toml"),
        (in_file, 'profile = "burst"\n', [], 3, "the profile burst"),
        (in_environment, "MTPLX_DEPTH=1", [], 1, "MTPLX_DEPTH"),
        (in_environment, "MTPLX_DEPTH=auto", [], "auto", "MTPLX_DEPTH"),
        (in_environment, "MTPLX_PROFILE=exact", [], 0, "the profile exact"),
    ],
)
def test_a_choice_of_the_user_goes_before_it(
    how: Callable[[Path, pytest.MonkeyPatch, str], None] | None,
    text: str,
    flags: list[str],
    depth: Depth,
    by: str,
    saved: Saved,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved(2)
    if how is not None:
        how(home, monkeypatch, text)
    found, report, err = run(capsys, *flags)
    assert found == depth
    assert (report["status"], report["depth"]) == ("overridden", 2)
    assert by in report["by"]
    assert "tuned" not in err


def test_settings_that_are_none_of_the_depth_leave_it_in_place(
    saved: Saved, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(2)
    (home / "config.toml").write_text("max_tokens = 9\n")
    assert run(capsys, "--temperature", "0")[0] == 2


def test_a_stale_result_is_not_used_and_says_why(
    saved: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(2, mlx="0.1.0")
    depth, report, err = run(capsys)
    assert (depth, report["status"]) == ("auto", "stale")
    assert "mlx 0.1.0 then, " in report["reason"]
    assert "warning: the tuned depth of this model is not used" in err
    assert f"`mtplx tune --model {demo_model_path()}` tunes again" in err
    assert "warning" not in run(capsys, "--depth", "1")[2]


def test_a_result_of_another_kv_cache_is_not_used_and_names_the_command(
    saved: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(2)
    depth, report, err = run(capsys, "--kv-bits", "8")
    assert (depth, report["status"]) == ("auto", "stale")
    assert "kv_bits none then, 8 now" in err
    assert "--kv-bits 8` tunes again" in err


def test_a_damaged_store_is_told_and_the_answer_given(
    saved: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(2)
    (state_folder() / NAME).write_text("{")
    depth, report, err = run(capsys)
    assert (depth, report["status"]) == ("auto", "unreadable")
    assert "damaged" in err
    assert "The tuned depth is not used." in err


def test_a_store_that_cannot_be_reached_is_told(
    saved: Saved, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(2)
    refused = PermissionError(13, "Permission denied")

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == NAME:
            raise refused
        return real_stat(path, *arguments, **options)

    def refuse_read(path: Path) -> bytes:
        if path.name == NAME:
            raise refused
        return real_read(path)

    real_stat, real_read = Path.stat, Path.read_bytes
    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse_read)
    depth, report, err = run(capsys)
    assert (depth, report["status"]) == ("auto", "unreadable")
    assert "Permission denied" in err


def test_a_model_that_was_never_tuned_says_nothing(
    saved: Saved, capsys: pytest.CaptureFixture[str], shared_tiny: TinyFactory
) -> None:
    depth, report, err = run(capsys)
    assert (depth, report) == ("auto", {"status": "none"})
    assert "tun" not in err
    saved(2)
    other = inspect_folder(shared_tiny("qwen3_5"))

    class Other(TunableModel):
        @property
        def inspection(self) -> Inspection:
            return other

    model = Other()
    assert execute(["run", "hi"], load=model.load) == 0
    assert model.calls[0][1]["depth"] == "auto"
    assert "tun" not in capsys.readouterr().err


@pytest.mark.parametrize(("draft", "is_deep"), [(1e-6, True), (50.0, False)])
def test_the_measured_costs_reach_the_adaptive_policy(
    draft: float, is_deep: bool, shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mtplx.load(shared_tiny("qwen3_5"))
    costs = KnownCosts(v=(1.0, 1.0, 1.0, 1.0, 1.0), c=draft, o=0.0, step_seconds=0.01)
    conditions = read_conditions(model.inspection, model.device, chip_name(), None)
    record = a_record(depth="auto", conditions=conditions, costs=costs)
    TuningStore.of_this_user().save(record, model.inspection, signature(model.inspection))
    monkeypatch.setattr("mtplx.runtime.model.measure_costs", lambda *_: pytest.fail("measured"))
    tuning = use_tuning(model, Screen(quiet=True), chosen=None)
    assert tuning.options == {"depth": "auto"}
    found = model.generate([1, 2, 3], max_tokens=20, ignore_end_tokens=True, **tuning.options)
    assert found.stats.costs == record.costs.to_costs()
    assert (sum(found.stats.drafted_by_depth) > 0) == is_deep


def test_a_tiny_model_is_tuned_for_real_and_run_uses_it(
    capsys: pytest.CaptureFixture[str], shared_tiny: TinyFactory
) -> None:
    model = ["--model", str(shared_tiny("qwen3_5"))]
    asked = ["--depths", "1", "--domains", "code", "--budget", "30s", "--json"]
    assert execute(["tune", *model, *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"] < 30.0
    assert found["rows"][1]["text_equals_plain"]
    assert execute(["run", "hi", *model, "--max-tokens", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["tuning"]
    assert (report["status"], report["depth"]) == ("used", found["depth"])
