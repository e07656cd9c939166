"""`mtplx serve`, `status` and `stop`: what is refused before a model is loaded, and one real run."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from mtplx import serving
from mtplx.contracts.errors import CorruptModelError
from mtplx.demo import demo_model_path
from mtplx.main import execute
from mtplx.runtime.diagnostics.last_failure import LastFailure, read_failure
from mtplx.runtime.server.state_file import running_servers, state_file
from tests.support.fake_model import FakeModel

KEY = "correct-horse-battery"

Captured = pytest.CaptureFixture[str]


def refuse_to_load(*_: object, **__: object) -> Any:
    raise AssertionError("the model must not be loaded")


def refused(capsys: Captured, *arguments: str) -> tuple[int, str]:
    """The exit code and what is said, of a start that does not come to loading."""
    code = execute(["serve", "--quiet", "--port", "0", *arguments], load=refuse_to_load)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    return code, err


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"me: {KEY}\n")
    path.chmod(0o600)
    return path


def test_an_unknown_scheduler_mode_is_refused_with_the_choices(capsys: Captured) -> None:
    code, said = refused(capsys, "--scheduler-mode", "fast")
    assert code == 2
    for mode in ("serial", "solo_mtp", "hyper", "ar_batch", "mtp_batch", "cooperative"):
        assert mode in said


@pytest.mark.parametrize("mode", ["ar_batch", "mtp_batch", "cooperative"])
@pytest.mark.parametrize("is_flag", [True, False])
def test_modes_of_later_versions_are_refused_with_those_of_this_one(
    capsys: Captured, home: Path, mode: str, is_flag: bool
) -> None:
    if not is_flag:
        (home / "config.toml").write_text(f'scheduler_mode = "{mode}"\n')
    code, said = refused(capsys, *(("--scheduler-mode", mode) if is_flag else ()))
    assert code == 2
    assert "not available in this version" in said
    assert "serial, solo_mtp, hyper" in said


@pytest.mark.parametrize("is_flag", [True, False])
def test_an_open_address_without_a_key_is_refused_with_the_command(
    capsys: Captured, home: Path, is_flag: bool
) -> None:
    if not is_flag:
        (home / "config.toml").write_text('host = "0.0.0.0"\n')
    code, said = refused(capsys, *(("--host", "0.0.0.0") if is_flag else ()))
    assert code == 2
    assert "--api-key-file" in said.splitlines()[-1]


def test_a_key_file_that_others_can_read_is_refused_with_the_command(
    capsys: Captured, key_file: Path
) -> None:
    key_file.chmod(0o644)
    code, said = refused(capsys, "--api-key-file", str(key_file))
    assert (code, said.splitlines()[-1]) == (2, f"hint: chmod 600 {key_file}")
    assert KEY not in said


def test_a_port_in_use_is_refused_and_kept_for_doctor(capsys: Captured) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, said = refused(capsys, "--port", str(port))
    assert code == 14
    assert f"port {port} of 127.0.0.1 is in use" in said
    assert f"mtplx serve --port {port + 1}" in said.splitlines()[-1]
    failure = read_failure()
    assert isinstance(failure, LastFailure)
    assert (failure.command, failure.code) == ("serve", "server")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--port 70000", "port"),
        ("--host 192.0.2.1 --api-key-file KEYS", "192.0.2.1"),
        ("--api-key-file /no/such/file", "/no/such/file"),
        ("--depth 9", "depth"),
        ("--no-mtp --depth 2", "contradict"),
        ("--deadline 0", "deadline"),
        ("--deadline nan", "deadline"),
        ("--queue-size -1", "queue-size"),
        ("--prefix-cache-bytes much", "prefix-cache-bytes"),
        ("--max-body-bytes -1", "max-body-bytes"),
        ("--context-window 0", "context_window"),
        ("--allowed-host *", "allowed-host"),
        ("--profile fast", "profile"),
        ("--kv-bits 7", "kv_bits"),
    ],
)
def test_wrong_values_are_refused_by_name(
    capsys: Captured, key_file: Path, arguments: str, said: str
) -> None:
    code, text = refused(capsys, *arguments.replace("KEYS", str(key_file)).split())
    assert code == 2
    assert said in text


def test_a_model_that_is_not_there_is_refused(capsys: Captured) -> None:
    assert execute(["serve", "--port", "0", "--quiet", "--model", "./nowhere"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "nowhere" in err


def test_packages_that_are_missing_are_named(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "find_spec", lambda name: None if name == "uvicorn" else object())
    code, said = refused(capsys)
    assert code == 2
    assert "uvicorn" in said
    assert 'pip install "mtplx[server]"' in said


def test_what_loading_fails_with_is_the_last_line_and_the_exit_code(capsys: Captured) -> None:
    load: Any = FakeModel(load_error=CorruptModelError("a shard is damaged")).load
    assert execute(["serve", "--port", "0", "--quiet"], load=load) == 4
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: a shard is damaged\n")
    failure = read_failure()
    assert isinstance(failure, LastFailure)
    assert failure.code == "corrupt_model"
    assert running_servers() == {}


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("12", 12), ("3k", 3072), ("512M", 2**29), ("4GiB", 2**32), ("1gb", 2**30)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert serving.parse_size("x", text) == size


@pytest.mark.parametrize("command", ["status", "stop"])
def test_where_no_server_runs_that_is_said(capsys: Captured, command: str) -> None:
    assert execute([command]) == 14
    assert "no server of mtplx runs here" in capsys.readouterr().err


def test_status_of_an_address_where_nobody_answers(capsys: Captured) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert execute(["status", "--url", url, "--json"]) == 14
    [server] = json.loads(capsys.readouterr().out)["servers"]
    assert (server["url"], server["status"]) == (url, "unreachable")


def test_status_of_what_is_no_address(capsys: Captured) -> None:
    assert execute(["status", "--url", "localhost:8000"]) == 2
    assert "http://127.0.0.1:8000" in capsys.readouterr().err


@pytest.fixture
def deaf() -> Iterator[subprocess.Popen[str]]:
    """A process that says it is a server and does not end when asked to."""
    code = "import signal, sys; signal.signal(15, signal.SIG_IGN); print('on', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    state = {
        "pid": process.pid,
        "started": psutil.Process(process.pid).create_time(),
        "url": "http://127.0.0.1:8001",
        "model": "m",
        "version": "1",
    }
    file = state_file(8001)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(state))
    yield process
    process.kill()
    process.communicate()


def test_a_server_that_does_not_stop_is_only_killed_when_asked_to(
    capsys: Captured, deaf: subprocess.Popen[str]
) -> None:
    assert execute(["stop", "--timeout", "0.1"]) == 14
    said = capsys.readouterr().err
    assert "mtplx stop --port 8001 --force" in said.splitlines()[-1]
    assert execute(["stop", "--port", "8001", "--timeout", "0.1", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"port": 8001, "pid": deaf.pid, "killed": True}
    assert not psutil.pid_exists(deaf.pid)
    assert not state_file(8001).exists()


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mtplx", "serve", "--port", "0", "--depth", "1", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def test_a_server_from_its_ready_line_to_its_end(capsys: Captured, key_file: Path) -> None:
    process = start(
        "--api-key-file", str(key_file), "--alias", "gpt-4", "--cors-origin", "http://a"
    )
    try:
        assert process.stdout is not None
        ready, curl = process.stdout.readline(), process.stdout.readline()
        found = re.fullmatch(r"ready: (http://127\.0\.0\.1:(\d+)) serves demo-model\n", ready)
        assert found is not None, ready
        url, port = found.groups()
        assert curl.startswith(f"curl {url}/v1/chat/completions -H 'authorization: Bearer KEY'")
        assert '"model": "demo-model"' in curl

        assert execute(["status", "--json", "--api-key-file", str(key_file)]) == 0
        [told] = json.loads(capsys.readouterr().out)["servers"]
        assert told["url"] == url
        assert told["pid"] == process.pid
        assert told["aliases"] == ["gpt-4"]
        assert told["scheduler_mode"] == "serial"
        assert told["completion_tokens"] == 0
        assert execute(["status", "--url", url]) == 0
        assert "tier" not in capsys.readouterr().out

        assert httpx2.get(f"{url}/metrics").status_code == 401
        key = {"x-api-key": KEY}
        settings = httpx2.get(f"{url}/v1/mtplx/settings", headers=key).json()["settings"]
        assert (settings["depth"], settings["max_tokens"]) == (1, serving.DEFAULT_MAX_TOKENS)
        assert "mtplx_active_requests 0.0" in httpx2.get(f"{url}/metrics", headers=key).text

        assert execute(["serve", "--quiet", "--port", port], load=refuse_to_load) == 14
        assert execute(["stop", "--port", port]) == 0
        assert process.wait(10) == 0
        out, err = process.communicate()
        assert out == ""
        assert "key=me" in err
        assert err.endswith("note: stopped\n")
        assert KEY not in err
        assert not state_file(int(port)).exists()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_well(number: signal.Signals) -> None:
    process = start("--json", "--model", str(demo_model_path()))
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert httpx2.get(f"{ready['url']}/health/ready").status_code == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out, err) == (0, "", "")
        assert running_servers() == {}
    finally:
        process.kill()


@pytest.mark.slow
def test_a_signal_ends_a_server_that_is_being_started() -> None:
    process = start()
    try:
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
        assert process.returncode in (0, 130, -signal.SIGTERM)
        assert running_servers() == {}
    finally:
        process.kill()
