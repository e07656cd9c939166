"""Python, platform, memory, disk and port."""

import platform
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from mtplx.runtime.diagnostics.catalogue import failed, passed, warned
from mtplx.runtime.diagnostics.report import Check

_MIN_PYTHON = (3, 11)
_MIN_MACOS = 14
_LINUX_MACHINES = {"x86_64", "aarch64", "arm64"}
_GIB = 2**30
# Below these not even a small model or a record fits.
_LEAST_MEMORY = 256 * 2**20
_LEAST_DISK = 100 * 2**20


@dataclass(frozen=True, slots=True)
class Python:
    """The interpreter that runs mtplx."""

    version: tuple[int, int, int]
    implementation: str
    is_64bit: bool


@dataclass(frozen=True, slots=True)
class Platform:
    """The operating system as `platform` names it; `macos` is "" elsewhere."""

    system: str
    machine: str
    macos: str


def read_python() -> Python:
    """The interpreter of this process."""
    version = (sys.version_info.major, sys.version_info.minor, sys.version_info.micro)
    return Python(version, platform.python_implementation(), sys.maxsize > 2**32)


def check_python(python: Python) -> Check:
    """Whether the interpreter is one that MLX has wheels for."""
    version = ".".join(map(str, python.version))
    observed = f"{python.implementation} {version}, {64 if python.is_64bit else 32}-bit"
    is_good = (
        python.version >= _MIN_PYTHON and python.implementation == "CPython" and python.is_64bit
    )
    if is_good:
        return passed("python.version", observed)
    fix = "Install mtplx into an environment of a 64-bit CPython 3.11 or newer."
    return failed("python.version", observed, fix, "python3.11 -m venv mtplx-env")


def read_platform() -> Platform:
    """The platform of this process."""
    return Platform(platform.system(), platform.machine(), platform.mac_ver()[0])


def check_platform(found: Platform) -> Check:
    """Whether MLX exists for the platform."""
    observed = f"{found.system} on {found.machine}"
    if found.system == "Linux":
        fix, is_good = "MLX has no wheels for this processor.", found.machine in _LINUX_MACHINES
    elif found.system == "Darwin":
        observed = f"macOS {found.macos} on {found.machine}"
        fix = "Use a native ARM64 Python on macOS 14 or newer; Rosetta and Intel are not supported."
        major = found.macos.partition(".")[0]
        is_good = found.machine == "arm64" and major.isdecimal() and int(major) >= _MIN_MACOS
    else:
        fix, is_good = "Run mtplx on Linux or macOS; on Windows, in WSL.", False
    if is_good:
        return passed("os.platform", observed)
    return failed("os.platform", observed, fix)


def check_memory(available: int, total: int) -> Check:
    """Whether anything can be loaded now; both are bytes."""
    observed = f"{_size(available)} of {_size(total)} available"
    if available >= _GIB:
        return passed("resource.memory", observed)
    fix = "Close programs that hold much memory."
    report = failed if available < _LEAST_MEMORY else warned
    return report("resource.memory", observed, fix)


def read_memory() -> tuple[int, int]:
    """Bytes available and bytes in all."""
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def read_disks(folders: Mapping[str, Path]) -> dict[str, int]:
    """Free bytes where each of `folders` is or would be made."""
    return {name: shutil.disk_usage(existing(path)).free for name, path in folders.items()}


def existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists."""
    path = path.absolute()
    while not _is_there(path) and path != path.parent:
        path = path.parent
    return path


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder that may not be searched
        return False


def check_disk(free: Mapping[str, int]) -> Check:
    """Whether the fullest of the disks has room; bytes by what is kept there."""
    observed = ", ".join(f"{_size(size)} free for {name}" for name, size in free.items())
    least = min(free.values())
    if least >= _GIB:
        return passed("resource.disk", observed)
    fix = "Free some disk space, or set MTPLX_HOME and HF_HOME to a larger disk."
    report = failed if least < _LEAST_DISK else warned
    return report("resource.disk", observed, fix, "df -h")


def port_problem(port: int) -> str | None:
    """Why no server could listen on `port` of this machine; None when one could."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections of a server that has just ended do not keep the next one from starting.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as cause:
            return (cause.strerror or str(cause)).lower()
    return None


def check_port(port: int, problem: str | None, system: str, own_server: str | None = None) -> Check:
    """Whether `port` of the settings is free, or this user serves the model `own_server` on it."""
    if own_server is not None:
        return passed("port.mtplx_server", f"port {port}: mtplx serves {own_server}")
    if port == 0:
        return passed("port.mtplx_server", "port 0 is whichever is free")
    if problem is None:
        return passed("port.mtplx_server", f"port {port} is free")
    show = (
        f"lsof -nP -iTCP:{port} -sTCP:LISTEN"
        if system == "Darwin"
        else f"ss -ltnp 'sport = :{port}'"
    )
    fix = "End the program that listens there, or choose another port: `mtplx config set port N`."
    return warned("port.mtplx_server", f"port {port}: {problem}", fix, show)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.1f} GiB"
