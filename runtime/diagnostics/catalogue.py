"""The one list of checks: their names, what they cost, what passes, and the error they stand for."""

from typing import Final, NamedTuple

from mtplx.contracts.errors import (
    BackendError,
    CorruptModelError,
    DownloadError,
    InternalError,
    MTPLXError,
    ResourceError,
    UnsupportedModelError,
    UsageError,
)
from mtplx.runtime.diagnostics.report import Check, Severity, Status


class Entry(NamedTuple):
    """What is fixed about a check; a failure ends doctor with the exit code of `error`."""

    id: str
    severity: Severity
    error: type[MTPLXError]
    expected: str


_BLOCKER, _MAJOR, _MINOR = Severity

# In the order of the report: what everything else needs comes first.
CATALOGUE: Final = (
    Entry("python.version", _BLOCKER, BackendError, "64-bit CPython 3.11 or newer"),
    Entry(
        "os.platform",
        _BLOCKER,
        BackendError,
        "Linux on x86-64 or ARM64, or macOS 14 or newer on Apple Silicon",
    ),
    Entry("mlx.conflict", _BLOCKER, BackendError, "one MLX back end, of the version of mlx"),
    Entry(
        "packages.versions", _BLOCKER, BackendError, "every dependency in the range mtplx asks for"
    ),
    Entry("mlx.import", _BLOCKER, BackendError, "an MLX back end that fits the machine"),
    Entry("mlx.compute", _BLOCKER, BackendError, "matrix products that agree with NumPy"),
    Entry("kernels.self_check", _BLOCKER, BackendError, "kernels that agree with plain operations"),
    Entry("cpu.blas", _MAJOR, BackendError, "MKL or OpenBLAS where MLX computes on the CPU"),
    Entry("cpu.compiler", _MAJOR, BackendError, "g++ where MLX computes on the CPU"),
    Entry("config.file", _BLOCKER, UsageError, "settings that are known and valid"),
    Entry(
        "state.folder",
        _MAJOR,
        UsageError,
        "a folder for you alone to write to, with records for you alone",
    ),
    Entry("resource.memory", _MAJOR, ResourceError, "1 GiB of memory available"),
    Entry("resource.disk", _MAJOR, ResourceError, "1 GiB of disk free for records and downloads"),
    Entry("model.integrity", _MAJOR, CorruptModelError, "complete files that fit each other"),
    Entry(
        "model.contract", _MINOR, CorruptModelError, "no contract, or one with complete evidence"
    ),
    Entry("model.tier", _MINOR, UnsupportedModelError, "a model with an MTP head that can be used"),
    Entry("model.memory", _MAJOR, ResourceError, "weights that fit into the available memory"),
    Entry(
        "tuning.record",
        _MINOR,
        UsageError,
        "no tuning result of the model, or one that still holds",
    ),
    Entry("port.mtplx_server", _MINOR, UsageError, "a free port for the server"),
    Entry("runtime.identity", _MINOR, UsageError, "no mtplx on PATH but the version that runs"),
    Entry("hub.access", _MAJOR, DownloadError, "a hub that answers"),
    Entry("hub.login", _MINOR, DownloadError, "no token, or one that the hub accepts"),
    Entry("app.last_failed_start", _MINOR, InternalError, "no command that failed"),
)

_BY_ID: Final = {entry.id: entry for entry in CATALOGUE}


def passed(check_id: str, observed: str) -> Check:
    """Nothing to do."""
    return _check(check_id, Status.PASS, observed)


def skipped(check_id: str, why: str, command: str = "") -> Check:
    """Not looked at, or nothing there to look at, and why; `command` would make something be there."""
    return _check(check_id, Status.SKIP, why, command=command)


def warned(check_id: str, observed: str, fix: str, command: str = "") -> Check:
    """It works, and not as it should."""
    return _check(check_id, Status.WARN, observed, fix, command)


def failed(
    check_id: str, observed: str, fix: str, command: str = "", *, exit_code: int | None = None
) -> Check:
    """It does not work; `exit_code` is given where the cause has another one than the check."""
    return _check(check_id, Status.FAIL, observed, fix, command, exit_code)


def _check(
    check_id: str,
    status: Status,
    observed: str,
    fix: str = "",
    command: str = "",
    exit_code: int | None = None,
) -> Check:
    entry = _BY_ID[check_id]
    return Check(
        id=check_id,
        status=status,
        severity=entry.severity,
        observed=observed,
        expected=entry.expected,
        fix=fix,
        command=command,
        exit_code=exit_code or entry.error.exit_code,
    )
