"""Running `mtplx forge publish`, in this process and in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from mtplx import main
from mtplx.commands.forge.publish import publish

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# The command alone behind the real entry point, which reports errors and gives exit codes.
_CHILD = """
import typer
from mtplx import main
from mtplx.commands.forge.publish import publish
main.app = typer.Typer(pretty_exceptions_enable=False)
main.app.command()(publish)
main.main()
"""


class Result(NamedTuple):
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object that `--json` prints."""
        assert self.out.count("\n") == 1, self.out
        found: dict[str, Any] = json.loads(self.out)
        return found


class Publisher:
    """Publishes in this process, as the command line does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        app = typer.Typer(pretty_exceptions_enable=False)
        app.command()(publish)
        monkeypatch.setattr(main, "app", app)
        self._capsys = capsys

    def __call__(self, path: Path, repo: str, *flags: str) -> Result:
        """Run the command, confirmed beforehand."""
        return self.run(str(path), "--repo", repo, "--yes", *flags)

    def run(self, *arguments: str) -> Result:
        """Run the command with these arguments only."""
        self._capsys.readouterr()
        code = main.execute(list(arguments))
        return Result(code, *self._capsys.readouterr())


def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _CHILD, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
