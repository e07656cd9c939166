"""The command line as a whole: help, version, what is registered, a reader that goes away."""

import os
import subprocess
import sys

import pytest

import mtplx
from mtplx.app import COMMANDS
from mtplx.main import execute


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out == f"mtplx {mtplx.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(arguments) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([name, "--help"]) == 0
    assert f"mtplx {name}" in capsys.readouterr().out


def test_a_group_without_subcommand_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench"]) == 2
    out, err = capsys.readouterr()
    assert "speed" in out
    assert err.startswith("error: a subcommand is missing\n")


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["rnu"]) == 2
    assert "rnu" in capsys.readouterr().err


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mtplx", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, f"mtplx {mtplx.__version__}\n")


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    code = (
        "from mtplx.main import execute\n"
        "from tests.support.fake_model import FakeModel\n"
        "model = FakeModel(pieces=('x' * 1000,) * 1000)\n"
        "raise SystemExit(execute(['run', 'hi', '--quiet'], load=model.load))\n"
    )
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    _, err = process.communicate(timeout=60)
    assert err == ""
    assert process.returncode == 0
