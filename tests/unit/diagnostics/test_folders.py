"""The state folder and the settings, as they might be."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplx.contracts.errors import UsageError
from mtplx.runtime.diagnostics import folders
from mtplx.runtime.diagnostics.folders import FolderFacts

PLACE = Path("/some where/state")


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (FolderFacts(PLACE, 0o700, is_folder=True, is_writable=True), "pass"),
        (FolderFacts(PLACE, 0o755, is_folder=True, is_writable=True), "pass"),
        (FolderFacts(PLACE, None, is_folder=True, is_writable=True), "pass"),
        (FolderFacts(PLACE, 0o777, is_folder=True, is_writable=True), "warn"),
        (FolderFacts(PLACE, 0o775, is_folder=True, is_writable=True), "warn"),
        (FolderFacts(PLACE, 0o755, is_folder=True, is_writable=True, num_open=2), "warn"),
        (FolderFacts(PLACE, 0o500, is_folder=True, is_writable=False), "fail"),
        (FolderFacts(PLACE, None, is_folder=True, is_writable=False), "fail"),
        (FolderFacts(PLACE, 0o644, is_folder=False, is_writable=False), "fail"),
    ],
)
def test_state_folders(facts: FolderFacts, status: str) -> None:
    check = folders.check_state_folder(facts)
    assert (check.status, check.exit_code) == (status, 2)
    assert bool(check.fix) == check.needs_action


def test_commands_quote_the_path() -> None:
    check = folders.check_state_folder(FolderFacts(PLACE, 0o777, is_folder=True, is_writable=True))
    assert check.command == "chmod go-w '/some where/state'"


def test_folders_are_read_without_being_made(tmp_path: Path) -> None:
    assert folders.read_folder(tmp_path / "a" / "b").mode is None
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir(mode=0o750)
    assert folders.read_folder(tmp_path / "a") == FolderFacts(tmp_path / "a", 0o750, True, True)
    (tmp_path / "file").touch()
    assert not folders.read_folder(tmp_path / "file").is_folder
    assert not folders.read_folder(tmp_path / "file" / "state").is_folder


def test_records_that_others_may_read_are_counted(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name, mode in (("own", 0o600), ("open", 0o644), ("group", 0o640)):
        (tmp_path / name).write_text("a prompt")
        (tmp_path / name).chmod(mode)
    (tmp_path / "lock").touch(0o644)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "open").write_text("a prompt")
    assert folders.read_folder(tmp_path).num_open == 2
    tmp_path.chmod(0o700)
    assert folders.read_folder(tmp_path).num_open == 0


def test_settings_that_are_wrong_fail_with_their_message(tmp_path: Path) -> None:
    def refuse() -> None:
        raise UsageError("depth is 99", hint="Correct it.")

    check = folders.check_config(refuse, tmp_path / "config.toml")
    assert (check.status, check.exit_code) == ("fail", 2)
    assert (check.observed, check.fix) == ("depth is 99", "Correct it.")
    assert folders.check_config(lambda: None, tmp_path / "config.toml").status == "pass"
