"""A build that is killed with SIGKILL at random points, and resumed, ends with the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.demo import demo_model_path

if TYPE_CHECKING:
    from pathlib import Path

NAME = "artifact"


def start(out: Path, *flags: str, verify: str = "none") -> subprocess.Popen[str]:
    """A build of the demo model in a process group of its own, so that nothing of it survives."""
    command = [sys.executable, "-W", "ignore", "-m", "mtplx", "forge", "build"]
    options = ["--name", NAME, "--recipe", "optimized-quality", "--verify", verify, "--json"]
    return subprocess.Popen(
        [*command, str(demo_model_path()), "--out", str(out), *options, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The build's answer; fails with what it wrote when it did not succeed."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, f"{out}\n{err}"
    answer: dict[str, Any] = json.loads(out)
    return answer


def kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def bytes_of(artifact: Path) -> dict[str, str]:
    return {
        path.relative_to(artifact).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(artifact.rglob("*"))
        if path.is_file()
    }


def undisturbed(out: Path, verify: str = "none") -> tuple[dict[str, str], float]:
    """The bytes of a build that nothing disturbed, and the seconds it took."""
    begin = time.monotonic()
    finish(start(out, verify=verify))
    return bytes_of(out / NAME), time.monotonic() - begin


def test_killed_again_and_again_while_going_on(tmp_path: Path) -> None:
    expected, seconds = undisturbed(tmp_path / "undisturbed")
    out = tmp_path / "disturbed"
    kill_after(start(out), seconds * 0.25)
    kill_after(start(out, "--resume"), seconds * 0.5)
    assert not (out / NAME).exists()
    finish(start(out, "--resume"))
    assert bytes_of(out / NAME) == expected


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("verify", "points"), [("none", 20), ("exactness", 4)])
def test_killed_at_random_points(tmp_path: Path, verify: str, points: int) -> None:
    expected, seconds = undisturbed(tmp_path / "undisturbed", verify)
    chance = random.Random(20)
    for point in range(points):
        out = tmp_path / str(point)
        delay = chance.uniform(0.0, seconds)
        kill_after(start(out, verify=verify), delay)
        # The kill may have come after the rename: then the whole artifact must be there.
        if (out / NAME).exists():
            assert bytes_of(out / NAME) == expected, f"after {delay:.2f} s"
        finish(start(out, "--resume", verify=verify))
        assert bytes_of(out / NAME) == expected, f"after {delay:.2f} s"
