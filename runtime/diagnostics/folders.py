"""The state folder and the settings."""

import os
import shlex
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtplx.contracts.errors import UsageError
from mtplx.runtime.diagnostics.catalogue import failed, passed, warned
from mtplx.runtime.diagnostics.machine import existing
from mtplx.runtime.diagnostics.report import Check

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_OTHERS_USE = stat.S_IRGRP | stat.S_IROTH | _OTHERS_WRITE


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """`mode` holds permission bits, None when the folder is not there yet.

    `is_writable` is about the nearest folder above then. `num_open` counts files in it that
    others may read.
    """

    path: Path
    mode: int | None
    is_folder: bool
    is_writable: bool
    num_open: int = 0


def read_folder(path: Path) -> FolderFacts:
    """How things stand with `path`; nothing is created."""
    place = existing(path)
    may_write = os.access(place, os.W_OK | os.X_OK)
    if place != path.absolute():
        return FolderFacts(path, None, place.is_dir(), may_write)
    mode = stat.S_IMODE(path.stat().st_mode)
    num_open = count_open_files(path) if mode & _OTHERS_ENTER else 0
    return FolderFacts(path, mode, path.is_dir(), may_write, num_open)


def count_open_files(folder: Path) -> int:
    """Files below `folder` with something in them that others may read or write.

    Empty ones are marks and locks. A folder that others may not enter protects what it holds.
    """
    found = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _bits(Path(place, name)) & _OTHERS_ENTER]
        found += sum(_bits(Path(place, name)) & _OTHERS_USE != 0 for name in names)
    return found


def _bits(path: Path) -> int:
    """Permission bits; none for an empty file, and for what is gone meanwhile or a link."""
    try:
        status = path.lstat()
    except OSError:
        return 0
    if stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size > 0):
        return stat.S_IMODE(status.st_mode)
    return 0


def check_state_folder(facts: FolderFacts) -> Check:
    """Whether records can be kept, and whether others could change them."""
    path = shlex.quote(str(facts.path))
    if not facts.is_folder:
        fix = "A file is in the way; move it."
        return failed("state.folder", f"{facts.path} cannot be a folder", fix, f"ls -ld {path}")
    if not facts.is_writable:
        fix = "Give yourself the right to write there, or set MTPLX_HOME to another folder."
        command = f'sudo chown -R "$(id -u)" {path}' if facts.mode is not None else ""
        return failed("state.folder", f"{facts.path} cannot be written", fix, command)
    if facts.mode is None:
        return passed("state.folder", f"{facts.path} will be made when it is needed")
    observed = f"{facts.path}, mode {facts.mode:o}"
    if facts.mode & _OTHERS_WRITE:
        fix = "Take the right to write from others."
        return warned("state.folder", observed, fix, f"chmod go-w {path}")
    if facts.num_open:
        fix = "Take the rights to them from others; records may hold prompts."
        observed += f", {facts.num_open} records that others may read"
        return warned("state.folder", observed, fix, f"chmod -R go-rwx {path}")
    return passed("state.folder", observed)


def check_config(load: Callable[[], object], file: Path) -> Check:
    """Whether the settings can be resolved; `load` raises UsageError where not."""
    try:
        load()
    except UsageError as error:
        return failed("config.file", error.message, error.hint, f"cat {shlex.quote(str(file))}")
    return passed("config.file", str(file) if file.exists() else f"{file} is not there: defaults")
