"""When a machine counts as busy."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from mtplx.runtime.bench.conditions import Moment, busy_reason, now, other_cores

SPIN = """
import sys, time
while time.process_time() < 0.3:
    pass
print("x", end="", flush=True)
sys.stdin.read()
"""


def moment(clock: float, machine: float, own: float) -> Moment:
    return Moment(datetime.now(UTC), (0.0, 0.0, 0.0), clock, machine, own)


@pytest.mark.parametrize(
    ("machine", "own", "others"), [(20.0, 20.0, 0.0), (20.0, 5.0, 1.5), (4.9, 5.0, 0.0)]
)
def test_other_work_is_what_the_machine_did_and_we_did_not(
    machine: float, own: float, others: float
) -> None:
    start, end = moment(100.0, 7.0, 3.0), moment(110.0, 7.0 + machine, 3.0 + own)
    assert other_cores(start, end) == pytest.approx(others)


@pytest.mark.parametrize(("others", "cores"), [(0.0, 2), (0.25, 2), (1.5, 16)])
def test_a_little_other_work_is_what_any_machine_does(others: float, cores: int) -> None:
    assert busy_reason(others, cores) is None


def test_more_is_told_with_its_size() -> None:
    assert busy_reason(0.5, 2) == "other processes kept 0.5 of 2 cores busy"
    assert busy_reason(1.7, 16) is not None


@pytest.mark.parametrize("ends", [False, True])
def test_work_of_processes_that_we_started_is_ours(ends: bool) -> None:
    start = now()
    with subprocess.Popen(
        [sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        if ends:
            process.communicate()
        end = now()
    assert end.own - start.own >= 0.29
    assert end.machine - start.machine >= 0.25
    assert end.clock > start.clock
