"""`mtplx config`: what it shows, and that a change is whole, checked, and touches nothing else."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx import config_file as config_file_module
from mtplx.config import Config
from mtplx.config_file import set_value
from mtplx.contracts.errors import UsageError
from mtplx.main import execute
from mtplx.profiles import PROFILES
from mtplx.settings import KEYS, about

FILE = """# my settings
depth = 3  # found by hand

# for the server
max_tokens = 99
"""


@pytest.fixture
def file(home: Path) -> Path:
    path = home / "config.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert execute(["config", *arguments]) == 0
    return capsys.readouterr().out


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(capsys, *arguments, "--json"))
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert execute(["config", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


# Showing


def test_show_has_every_key_with_its_value_and_origin(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MTPLX_TOP_P", "0.9")
    monkeypatch.setenv("MTPLX_PROFILE", "turbo")
    rows = [re.split(r"\s{2,}", line) for line in run(capsys, "show").splitlines()]
    assert rows[0] == ["key", "value", "from", "expected"]
    assert [row[0] for row in rows[1:]] == list(KEYS)
    by_key = {row[0]: row[1:] for row in rows}
    assert by_key["depth"] == ["3", str(file), about("depth").expected]
    assert by_key["top_p"][:2] == ["0.9", "MTPLX_TOP_P"]
    assert by_key["acceptance"][:2] == ["block", "profile turbo"]
    assert by_key["model"][:2] == ["-", "default"]


def test_show_as_json_tells_all_there_is(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "show")
    assert found["file"] == str(file)
    by_key = {row.pop("key"): row for row in found["settings"]}
    assert list(by_key) == list(KEYS)
    assert by_key["depth"] == {
        "value": 3,
        "origin": "file",
        "origin_name": str(file),
        "default": "auto",
        "expected": about("depth").expected,
        "description": about("depth").meaning,
        "variable": "MTPLX_DEPTH",
    }
    assert by_key["model_dirs"]["value"] == by_key["model_dirs"]["default"] == []
    assert by_key["profile"]["origin"] == "default"


def test_get_prints_the_value_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "get", "depth") == "3\n"
    assert run(capsys, "get", "acceptance") == "coupled\n"
    assert run(capsys, "get", "model") == "\n"
    assert run_json(capsys, "get", "depth")["origin_name"] == str(file)


def test_get_says_where_the_value_is_from_unless_quiet(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(["config", "get", "depth"])
    assert capsys.readouterr().err == f"note: from {file}\n"
    execute(["config", "get", "depth", "--quiet"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("arguments", [("get", "dept"), ("set", "dept", "3"), ("unset", "dept")])
def test_a_key_that_is_none_is_refused(
    file: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    err = refused(capsys, *arguments)
    assert "unknown setting 'dept'" in err
    assert "depth" in err
    assert file.read_text() == FILE


def test_path_prints_the_path_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "path") == f"{home / 'config.toml'}\n"
    assert run_json(capsys, "path") == {"file": str(home / "config.toml"), "exists": False}


def test_profiles_explains_each_by_what_it_sets_gives_and_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = run(capsys, "profiles")
    for profile in PROFILES.values():
        assert re.search(rf"^{profile.name}\b.*: {profile.purpose}$", text, re.MULTILINE)
        assert all(f"{key} {value}" in text for key, value in profile.options.items())
        assert f"  gives  {profile.gives}" in text
        assert f"  costs  {profile.costs}" in text
    assert "performance-cold" in text
    rows = run_json(capsys, "profiles")["profiles"]
    assert [row["name"] for row in rows] == ["stable", "sustained", "turbo", "burst", "exact"]
    assert rows[3]["options"] == dict(PROFILES["burst"].options)


# Changing


def test_set_keeps_comments_order_and_other_keys(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "set", "depth", "auto")
    run(capsys, "set", "temperature", "0.7")
    expected = FILE.replace("depth = 3 ", 'depth = "auto" ') + "temperature = 0.7\n"
    assert file.read_text() == expected


def test_set_makes_folder_and_file_for_the_owner_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MTPLX_HOME", str(home / "deep" / "er"))
    run(capsys, "set", "model_dirs", f"~/a{os.pathsep}/b")
    file = home / "deep" / "er" / "config.toml"
    assert file.read_text() == 'model_dirs = ["~/a", "/b"]\n'
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_set_keeps_the_permissions_that_the_file_has(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.chmod(0o640)
    run(capsys, "set", "depth", "1")
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_link_to_the_file_stays_a_link(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = file.with_name("dotfiles.toml")
    file.rename(kept)
    file.symlink_to(kept)
    run(capsys, "set", "depth", "1")
    assert file.is_symlink()
    assert "depth = 1" in kept.read_text()


def test_set_says_what_goes_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MTPLX_DEPTH", "2")
    assert execute(["config", "set", "depth", "1"]) == 0
    assert "warning: MTPLX_DEPTH in the environment goes before it" in capsys.readouterr().err
    assert run_json(capsys, "set", "depth", "1")["overridden_by"] == "MTPLX_DEPTH"


@pytest.mark.parametrize(
    ("key", "value"),
    [("depth", "9"), ("depth", "-1"), ("kv_bits", "7"), ("profile", "fast"), ("top_p", "nan")],
)
def test_a_wrong_value_is_refused_and_nothing_written(
    file: Path, key: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = file.stat()
    err = refused(capsys, "set", key, value)
    assert f"{key!r} in the argument: expected {about(key).expected}" in err
    assert file.read_text() == FILE
    assert file.stat().st_mtime_ns == before.st_mtime_ns


def test_a_file_with_another_fault_is_not_written_and_can_be_mended(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("dept = 3\ndepth = 99\n")
    assert "unknown setting 'dept'" in refused(capsys, "set", "depth", "3")
    run(capsys, "unset", "dept")
    assert "'depth'" in refused(capsys, "set", "max_tokens", "5")
    run(capsys, "set", "depth", "3")
    assert file.read_text() == "depth = 3\n"


@pytest.mark.parametrize("content", [b"depth = ", b"\xff\xfe", b"a = 1\na = 2\n", b"[depth\n"])
@pytest.mark.parametrize(
    "arguments", [("show",), ("get", "depth"), ("set", "depth", "3"), ("unset", "depth")]
)
def test_a_file_that_is_no_toml_is_told_and_left_alone(
    file: Path, content: bytes, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_bytes(content)
    assert f"{file} cannot be read as TOML" in refused(capsys, *arguments)
    assert file.read_bytes() == content


def test_errors_are_json_when_json_is_asked_for(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("depth = 99\n")
    assert execute(["config", "show", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["exit_code"]) == ("usage", 2)
    assert "found 99" in error["message"]


def test_unset_takes_one_key_out(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "unset", "max_tokens")
    assert file.read_text() == FILE.replace("max_tokens = 99\n", "")
    assert run_json(capsys, "unset", "max_tokens")["was_set"] is False


def test_a_place_that_cannot_be_written_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "file").touch()
    monkeypatch.setenv("MTPLX_HOME", str(home / "file" / "below"))
    assert "cannot be written" in refused(capsys, "set", "depth", "1")


def test_a_disk_that_is_full_leaves_the_old_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mtplx.contracts.files.os.fsync", full)
    assert execute(["config", "set", "depth", "1"]) == 8
    assert file.read_text() == FILE
    assert {path.name for path in file.parent.iterdir()} == {"config.toml", ".config.toml.lock"}


def set_or_refuse(key: str, text: str) -> Any:
    try:
        return set_value(key, text)
    except UsageError as error:
        return error


TEXTS = st.one_of(
    st.sampled_from(
        ["0", "3", "8", "auto", "coupled", "off", "0.5", "1", "burst", "serial", "1e3"]
    ),
    st.text(max_size=12),
)


@settings(max_examples=150)
@given(key=st.sampled_from(KEYS), text=TEXTS)
def test_any_text_is_either_refused_or_read_back_as_it_was_written(
    home: Path, key: str, text: str
) -> None:
    file = home / "config.toml"
    file.write_text(FILE, encoding="utf-8")
    written = set_or_refuse(key, text)
    if isinstance(written, UsageError):
        assert repr(key) in written.message
        assert file.read_text(encoding="utf-8") == FILE
        return
    config = Config.load()
    found = getattr(config, key)
    assert (list(found) if isinstance(found, tuple) else found) == written
    assert "# my settings\n" in file.read_text(encoding="utf-8")
    if key != "max_tokens":
        assert config.max_tokens == 99


SETTER = """
import sys
from mtplx.config import Config
from mtplx.config_file import set_value
key, values = sys.argv[1], sys.argv[2:]
for value in values * 8:
    set_value(key, value)
    assert str(getattr(Config.load(), key)) == value, (key, value)
"""


def test_two_processes_lose_nothing_of_each_other(file: Path) -> None:
    changes = (["depth", "1", "2", "4"], ["prefill_chunk", "64", "128", "256"])
    processes = [
        subprocess.Popen([sys.executable, "-c", SETTER, *change], stderr=subprocess.PIPE, text=True)
        for change in changes
    ]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
    assert file.read_text() == FILE.replace("depth = 3 ", "depth = 4 ") + "prefill_chunk = 256\n"


def test_a_lock_that_is_not_released_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from filelock import FileLock

    monkeypatch.setattr(config_file_module, "LOCK_TIMEOUT_S", 0.05)
    with FileLock(file.with_name(".config.toml.lock")):
        assert "locked by another process" in refused(capsys, "set", "depth", "1")
    assert file.read_text() == FILE
