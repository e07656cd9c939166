"""Python, platform, memory, disk and port, as they might be."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mtplx.runtime.diagnostics import machine
from mtplx.runtime.diagnostics.machine import Platform, Python

GIB = 2**30


@pytest.mark.parametrize(
    "python",
    [
        Python((3, 10, 14), "CPython", True),
        Python((3, 12, 0), "PyPy", True),
        Python((3, 12, 0), "CPython", False),
    ],
)
def test_an_interpreter_without_wheels_fails(python: Python) -> None:
    check = machine.check_python(python)
    assert (check.status, check.exit_code) == ("fail", 7)
    assert check.command


def test_a_newer_python_passes() -> None:
    assert machine.check_python(Python((3, 13, 0), "CPython", True)).status == "pass"


def test_this_interpreter_passes() -> None:
    assert machine.check_python(machine.read_python()).status == "pass"
    assert machine.check_platform(machine.read_platform()).status == "pass"


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (Platform("Linux", "x86_64", ""), "pass"),
        (Platform("Linux", "aarch64", ""), "pass"),
        (Platform("Linux", "riscv64", ""), "fail"),
        (Platform("Darwin", "arm64", "14.5"), "pass"),
        (Platform("Darwin", "arm64", "13.6"), "fail"),
        (Platform("Darwin", "x86_64", "15.0"), "fail"),
        (Platform("Windows", "AMD64", ""), "fail"),
    ],
)
def test_platforms(found: Platform, status: str) -> None:
    assert machine.check_platform(found).status == status


@pytest.mark.parametrize(
    ("available", "status"), [(8 * GIB, "pass"), (GIB // 2, "warn"), (GIB // 8, "fail")]
)
def test_memory(available: int, status: str) -> None:
    check = machine.check_memory(available, 16 * GIB)
    assert (check.status, check.exit_code) == (status, 8)


@pytest.mark.parametrize(
    ("free", "status"), [(50 * GIB, "pass"), (GIB // 2, "warn"), (1000, "fail")]
)
def test_the_fullest_disk_decides(free: int, status: str) -> None:
    check = machine.check_disk({"records": 100 * GIB, "downloads": free})
    assert (check.status, check.exit_code) == (status, 8)


def test_a_folder_that_is_not_there_is_on_the_disk_it_would_be_on(tmp_path: Path) -> None:
    free = machine.read_disks({"records": tmp_path / "a" / "b"})
    assert free["records"] > 0
    assert machine.existing(tmp_path / "a" / "b") == tmp_path


def test_a_port_in_use_is_seen() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert machine.port_problem(port) == "address already in use"
    assert machine.port_problem(port) is None


def test_a_port_in_use_warns_with_a_command_of_the_system() -> None:
    linux = machine.check_port(8000, "in use", "Linux")
    assert (linux.status, linux.command) == ("warn", "ss -ltnp 'sport = :8000'")
    assert machine.check_port(8000, "in use", "Darwin").command.startswith("lsof")
    assert machine.check_port(8000, None, "Linux").status == "pass"
    assert machine.check_port(0, None, "Linux").status == "pass"


def test_a_server_of_ones_own_is_no_fault_of_its_port() -> None:
    check = machine.check_port(8000, "in use", "Linux", "demo")
    assert (check.status, check.observed) == ("pass", "port 8000: mtplx serves demo")


def test_a_folder_that_may_not_be_searched_counts_as_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        if path != tmp_path:
            raise PermissionError(13, "Permission denied")
        return True

    monkeypatch.setattr(Path, "exists", refuse)
    assert machine.existing(tmp_path / "locked" / "state") == tmp_path
