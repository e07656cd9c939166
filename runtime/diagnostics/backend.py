"""Whether MLX is there, computes correctly and is fast, as seen from outside its process."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtplx.kernels.backend import TF32_KEY, install_hint
from mtplx.kernels.blas import ENVIRONMENT_KEY
from mtplx.runtime.diagnostics.catalogue import failed, passed, skipped, warned
from mtplx.runtime.diagnostics.report import Check

PROBE = "mtplx.runtime.diagnostics.backend_probe"
LIMIT_S = 60.0

_NVIDIA_LIMIT_S = 10.0
_ALONE = f"{shlex.quote(sys.executable)} -m {PROBE}"


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """What the probe told before it ended; see `backend_probe` for the values.

    `ending` says how it ended if not well: "was killed by SIGSEGV", "was stopped after 60 s", ...
    """

    backend: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    chip: str | None = None
    gpu_memory: dict[str, int] | None = None
    products: list[dict[str, Any]] | None = None
    kernels: list[dict[str, Any]] | None = None
    ending: str | None = None
    has_nvidia: bool = False
    has_compiler: bool = True
    is_blas_off: bool = False
    is_tf32_on: bool = False


def probe_backend(
    command: Sequence[str] | None = None, *, limit_s: float = LIMIT_S
) -> BackendFacts:
    """Try MLX in a process of its own, which may crash or hang."""
    # Without -P, files of the current folder would take the place of modules.
    command = command or [sys.executable, "-P", "-W", "ignore", "-m", PROBE]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        ending: str | None = f"was stopped after {limit_s:.0f} s"
    else:
        output, ending = done.stdout, _ending(done.returncode, done.stderr)
    found: dict[str, Any] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        found |= _stage(line)
    return BackendFacts(
        **found,
        ending=ending,
        has_nvidia=_has_nvidia(),
        has_compiler=shutil.which("g++") is not None,
        is_blas_off=os.environ.get(ENVIRONMENT_KEY, "").lower() == "none",
        is_tf32_on=os.environ.get(TF32_KEY, "0") != "0",
    )


def _has_nvidia() -> bool:
    """Whether the driver lists a GPU; its tools alone are in many images."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_NVIDIA_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.startswith(b"GPU ")


def _stage(line: str) -> dict[str, Any]:
    """What a line of the probe tells; a library may print lines of its own, or half of one."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    stages = ("backend", "error", "chip", "gpu_memory", "products", "kernels")
    return {k: v for k, v in found.items() if k in stages} if isinstance(found, dict) else {}


def _ending(code: int, errors: bytes) -> str | None:
    if code == 0:
        return None
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return f"ended with code {code}" + (f": {lines[-1].strip()[:200]}" if lines else "")


def check_backend(facts: BackendFacts) -> list[Check]:
    """All that is known from the probe."""
    return [
        check_import(facts),
        _check_deviations("mlx.compute", facts, facts.products),
        _check_deviations("kernels.self_check", facts, facts.kernels),
        check_blas(facts),
        check_compiler(facts),
    ]


def check_import(facts: BackendFacts) -> Check:
    """Which back end there is, and whether it uses the machine."""
    found = facts.backend
    if found is None:
        if facts.error is not None:
            hint = str(facts.error["hint"])
            return failed("mlx.import", str(facts.error["message"]), hint, _ALONE)
        observed = f"importing mlx: the process {facts.ending}" if facts.ending else "no answer"
        return failed(
            "mlx.import",
            observed,
            f"MLX is damaged or made for another machine; {install_hint()}.",
            _ALONE,
        )
    kind, device = found["kind"], found["device"]
    observed = f"{kind} back end, mlx {found['mlx_version']}, computing on the {device}"
    if kind != "cpu" and device == "cpu":
        fix = "Check the driver of the GPU; MLX does not see one."
        return warned("mlx.import", observed, fix, "nvidia-smi" if kind == "cuda" else "")
    if kind == "cpu" and facts.has_nvidia:
        fix = 'An NVIDIA GPU lies idle: install "mtplx[cuda13]" or "mtplx[cuda12]" instead.'
        command = "pip uninstall -y mlx mlx-cpu && pip install 'mtplx[cuda13]'"
        return warned("mlx.import", observed, fix, command)
    return passed("mlx.import", observed)


def _check_deviations(
    check_id: str, facts: BackendFacts, found: list[dict[str, Any]] | None
) -> Check:
    if facts.backend is None:
        return skipped(check_id, "MLX cannot be imported")
    fix = f"Report it with a bundle if a new installation does not help; {install_hint()}."
    if found is None:
        return failed(check_id, f"the process {facts.ending or 'said nothing'}", fix, _ALONE)
    wrong = [row for row in found if row["error"] is None or row["error"] > row["bound"]]
    if wrong and facts.is_tf32_on:
        fix = f"{TF32_KEY} rounds float32 products to 10 bits on a GPU; unset it and look again."
        return failed(check_id, ", ".join(map(_deviation, wrong)), fix, f"unset {TF32_KEY}")
    if wrong:
        return failed(check_id, ", ".join(map(_deviation, wrong)), fix, _ALONE)
    return passed(check_id, ", ".join(str(row["name"]) for row in found))


def _deviation(row: dict[str, Any]) -> str:
    if row["error"] is None:
        return f"{row['name']} is not finite"
    return f"{row['name']} is off by {row['error']:.1e} (allowed {row['bound']:.0e})"


def check_blas(facts: BackendFacts) -> Check:
    """Whether float32 products run on a fast library."""
    if facts.backend is None or facts.backend["kind"] != "cpu":
        return skipped("cpu.blas", "MLX does not compute on the CPU")
    blas = facts.backend["blas"]
    if blas is not None:
        return passed("cpu.blas", f"{blas['name']} ({blas['path']})")
    if facts.is_blas_off:
        fix, command = "MTPLX_BLAS=none turns fast libraries off; unset it.", "unset MTPLX_BLAS"
    else:
        fix = "Install MKL (x86-64) or the system's OpenBLAS; products become several times faster."
        command = "pip install 'mtplx[cpu]'"
    return warned("cpu.blas", "the slow reference BLAS of the wheel", fix, command)


def check_compiler(facts: BackendFacts) -> Check:
    """Whether MLX can fuse operations on the CPU, which takes a compiler."""
    if facts.backend is None or facts.backend["kind"] != "cpu":
        return skipped("cpu.compiler", "MLX does not compute on the CPU")
    if facts.has_compiler:
        return passed("cpu.compiler", "g++ is on PATH")
    fix = "Install g++ with the system's package manager, for example `apt-get install g++`."
    return warned("cpu.compiler", "no g++ on PATH", fix)
