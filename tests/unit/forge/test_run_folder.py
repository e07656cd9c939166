"""The run folder: phases are recorded once, one process works on it, a marker stops it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import CorruptModelError, UsageError
from mtplx.forge import cancel as cancelling
from mtplx.forge.run_folder import CANCEL_MARKER, RunFolder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run-1")


def test_a_new_run_knows_nothing(run: RunFolder) -> None:
    with run.lock():
        assert run.request() is None
        assert run.result("convert") is None
        assert run.partial("convert") == {}


def test_progress_is_no_result_and_a_finished_phase_is(run: RunFolder) -> None:
    with run.lock():
        run.progress("convert", {"label": "a", "files": {"x": 1}}, at_once=True)
        assert run.result("convert") is None
        assert run.partial("convert")["files"] == {"x": 1}
        run.finish("convert", {"label": "done"})
    assert RunFolder(run.path).result("convert") == {"finished": True, "label": "done"}


def test_progress_is_written_once_a_second_only(run: RunFolder) -> None:
    with run.lock():
        for number in range(50):
            run.progress("verify", {"progress": number})
        assert run.partial("verify")["progress"] == 0


def test_a_second_process_is_kept_out(run: RunFolder) -> None:
    with run.lock():
        assert run.is_busy()
        with (
            pytest.raises(UsageError, match=r"another process.*forge cancel run-1"),
            RunFolder(run.path).lock(),
        ):
            pass
    assert not run.is_busy()


def test_a_damaged_file_says_which_folder_to_remove(run: RunFolder) -> None:
    with run.lock():
        (run.path / "convert.json").write_text('{"finished": tr')
    with pytest.raises(CorruptModelError, match=r"convert\.json.*Remove .*run-1"):
        run.result("convert")


def test_cancelling_stops_the_run_at_its_next_step_and_not_the_resumed_one(run: RunFolder) -> None:
    with run.lock(), cancelling.registered(run):
        assert cancelling.cancel("run-1") == run.path.resolve()
        with pytest.raises(KeyboardInterrupt, match="cancelled"):
            run.progress("convert", {})
    with run.lock():
        run.progress("convert", {}, at_once=True)
    assert json.loads((run.path / "convert.json").read_text()) == {"finished": False}


def test_cancelling_a_run_that_is_not_there_names_those_that_are(
    run: RunFolder, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no build is running"):
        cancelling.cancel("run-1")
    with run.lock(), cancelling.registered(run):
        with pytest.raises(UsageError, match="running: run-1"):
            cancelling.cancel("run-2")
        twin = RunFolder(tmp_path / "other" / "run-1")
        with (
            twin.lock(),
            cancelling.registered(twin),
            pytest.raises(UsageError, match="More than one"),
        ):
            cancelling.cancel("run-1")
    assert not (run.path / CANCEL_MARKER).exists()


def test_the_entry_of_a_killed_build_is_swept_away(run: RunFolder) -> None:
    with run.lock(), cancelling.registered(run):
        entry = cancelling._entry(run)
        left_behind = entry.read_text()
    entry.write_text(left_behind)
    with pytest.raises(UsageError, match="no build is running"):
        cancelling.cancel("run-1")
    assert not entry.exists()
