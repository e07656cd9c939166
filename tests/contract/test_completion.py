"""Shell completion: what a shell is given, and what is installed where."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtplx.main import execute


def mtplx(*arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mtplx", *arguments],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def complete(line: str) -> list[str]:
    """What bash offers for the last word of `line`."""
    words = line.split(" ")
    answer = mtplx(_MTPLX_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    return answer.split()


def test_help_tells_how_to_get_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--help"]) == 0
    out = capsys.readouterr().out
    assert "--install-completion" in out
    assert "--show-completion" in out


def test_commands_keys_and_profiles_are_completed() -> None:
    assert complete("mtplx conf") == ["config"]
    assert complete("mtplx config set de") == ["depth"]
    assert complete("mtplx run --profile s") == ["stable", "sustained"]


def test_the_script_for_a_shell_calls_mtplx() -> None:
    assert "_MTPLX_COMPLETE=complete_zsh" in mtplx("--show-completion", "zsh")


def test_completion_is_installed_in_the_home_folder(tmp_path: Path) -> None:
    mtplx("--install-completion", "bash", HOME=str(tmp_path))
    installed = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_MTPLX_COMPLETE" in path.read_text() for path in installed)
