"""The machine while it is measured: who it is, and whether it has other work."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

import psutil

from mtplx.contracts.inspection import Inspection
from mtplx.runtime.bench.part import Conditions, MachineConditions, Options

_VERSIONS = ("mlx", "mlx-lm", "numpy")

# Other work below these is what any machine does.
_OTHER_CORES = 0.25
_OTHER_SHARE = 0.1

Load = tuple[float, float, float]


class Moment(NamedTuple):
    """A time, and what the machine has done until then.

    `clock`, `machine` and `own` are seconds: of a clock that never jumps, of all processors at work, and of those at
    work for this process and all that it started.
    """

    time: datetime
    load: Load
    clock: float
    machine: float
    own: float


def now() -> Moment:
    """This moment."""
    one, five, fifteen = psutil.getloadavg()
    times = psutil.cpu_times()
    # Time that a virtual machine was not given counts as other work: it makes figures as low.
    machine = sum(getattr(times, name, 0.0) for name in _AT_WORK)
    this = psutil.Process()
    own = sum(map(_seconds, (this, *this.children(recursive=True))))
    return Moment(datetime.now(UTC), (one, five, fifteen), time.monotonic(), machine, own)


_AT_WORK = ("user", "nice", "system", "irq", "softirq", "steal")


def _seconds(process: psutil.Process) -> float:
    """Of a process, and of those it started that have ended."""
    with suppress(psutil.NoSuchProcess):
        return float(sum(process.cpu_times()[:4]))
    return 0.0


def other_cores(start: Moment, end: Moment) -> float:
    """How many processors others kept busy on average between two moments."""
    others = (end.machine - start.machine) - (end.own - start.own)
    return max(others / max(end.clock - start.clock, 1e-9), 0.0)


def busy_reason(others: float, cores: int) -> str | None:
    """Why the machine counts as busy with other work; None when it does not."""
    if others <= max(_OTHER_CORES, _OTHER_SHARE * cores):
        return None
    return f"other processes kept {others:.1f} of {cores} cores busy"


def read_conditions(
    inspection: Inspection,
    identity: str,
    about: Mapping[str, Any],
    options: Options,
    started: Moment,
    ended: Moment,
) -> Conditions:
    """The conditions of figures taken between two moments; `about` is what the measuring process says of itself."""
    device, family = about["device"], inspection.family
    machine = machine_conditions(started, ended, _VERSIONS)
    return Conditions(
        **machine.model_dump(),
        model=inspection.path.resolve().name,
        identity=identity,
        family=family.name if family else str(inspection.config.get("model_type")),
        tier=str(inspection.tier),
        head=inspection.head.state,
        weight_bytes=inspection.size_bytes,
        device=device["device"],
        back_end=device["back_end"],
        chip=about["chip"],
        blas=device["blas"],
        dtypes=tuple(device["dtypes"]),
        options=options,
    )


def machine_conditions(
    started: Moment, ended: Moment, packages: Sequence[str]
) -> MachineConditions:
    """The machine between two moments, with the versions of Python, mtplx and `packages`."""
    cores = psutil.cpu_count(logical=True) or 1
    others = other_cores(started, ended)
    return MachineConditions(
        started=started.time,
        ended=ended.time,
        platform=platform.platform(),
        processor=platform.processor() or platform.machine(),
        cores=cores,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("mtplx", *packages)},
        },
        load_start=started.load,
        load_end=ended.load,
        other_cores=others,
        busy=busy_reason(others, cores),
    )
