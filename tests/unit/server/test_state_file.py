"""Which servers run: files of those that do, and of those that did."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mtplx.runtime.server.state_file import announced, running_servers, state_file


def write(port: int, **changes: object) -> Path:
    """The file of a server that this process would be."""
    state = {
        "schema_version": 1,
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "url": f"http://127.0.0.1:{port}",
        "model": "m",
        "version": "1",
    }
    file = state_file(port)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**state, **changes}))
    return file


def test_a_server_is_found_while_it_runs() -> None:
    with announced(8123, "http://127.0.0.1:8123", "m", "1.0") as file:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        [(port, state)] = running_servers().items()
        assert (port, state.pid, state.url) == (8123, os.getpid(), "http://127.0.0.1:8123")
    assert not file.exists()
    assert running_servers() == {}


def test_several_servers_are_told_apart() -> None:
    write(8001)
    write(9000)
    assert list(running_servers()) == [8001, 9000]


def test_files_of_processes_that_have_ended_are_removed() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file = write(8001, pid=ended.pid)
    assert running_servers() == {}
    assert not file.exists()


def test_a_number_that_belongs_to_another_process_now_is_not_taken_for_the_server() -> None:
    file = write(8001, started=psutil.Process().create_time() - 60)
    assert running_servers() == {}
    assert not file.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"schema_version": 2}'])
def test_damaged_files_are_removed(content: str) -> None:
    file = state_file(8001)
    file.parent.mkdir(parents=True)
    file.write_text(content)
    assert running_servers() == {}
    assert not file.exists()
