"""Which servers of this user run: one small file each, named by the port."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from mtplx.contracts.files import write_json
from mtplx.contracts.folders import state_folder

# The system's figure for when a process began is rounded.
_SAME_START_S = 2.0


class ServerState(BaseModel):
    """A running server; `started` is when its process began, in seconds since 1970."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    pid: int
    started: float
    url: str
    model: str
    version: str

    def process(self) -> psutil.Process | None:
        """The process, or None where it has ended and its number may belong to another."""
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started) <= _SAME_START_S
            is_dead = process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
        return process if is_same and not is_dead else None


@contextmanager
def announced(port: int, url: str, model: str, version: str) -> Iterator[Path]:
    """The file is there while the block runs. Raises MTPLXError or OSError when it cannot be written."""
    file = state_file(port)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = ServerState(
        pid=os.getpid(),
        started=psutil.Process().create_time(),
        url=url,
        model=model,
        version=version,
    )
    write_json(file, state.model_dump(mode="json"), mode=0o600)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def state_file(port: int) -> Path:
    """Where the server on `port` says that it runs."""
    return state_folder() / "servers" / f"{port}.json"


def server_on(port: int) -> ServerState | None:
    """This user's server on `port`, where one runs and the folder of states can be read."""
    try:
        state = _read(state_file(port))
    except OSError:
        return None
    return state if state is not None and state.process() is not None else None


def running_servers() -> dict[int, ServerState]:
    """The servers of this user that run, by their port; files of others are removed."""
    folder = state_folder() / "servers"
    found = {}
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        state = _read(file)
        if state is not None and state.process() is not None:
            found[int(file.stem)] = state
        else:
            file.unlink(missing_ok=True)
    return found


def _read(file: Path) -> ServerState | None:
    """The content, or None where it is not one of ours."""
    if not file.stem.isdecimal():
        return None
    try:
        return ServerState.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, ValidationError):
        return None
