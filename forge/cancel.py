"""Stopping a build from outside: builds register where they run, and look for a marker there."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtplx.contracts.errors import UsageError
from mtplx.contracts.files import write_json, write_text
from mtplx.contracts.folders import state_folder
from mtplx.contracts.json_object import read_object
from mtplx.forge.run_folder import CANCEL_MARKER, RunFolder


@contextmanager
def registered(run: RunFolder) -> Iterator[None]:
    """Let `cancel` find the run while the block lasts."""
    entry = _entry(run)
    entry.parent.mkdir(parents=True, exist_ok=True)
    write_json(entry, {"run_id": run.run_id, "path": str(run.path.resolve())}, mode=0o600)
    try:
        yield
    finally:
        entry.unlink(missing_ok=True)


def cancel(run_id: str) -> Path:
    """Ask the running build `run_id` to stop; it can be resumed. Returns its run folder.

    Raises UsageError when no build of that name runs, or more than one does.
    """
    running = {run.path: run for run in _registered_runs() if run.run_id == run_id}
    if not running:
        others = sorted({run.run_id for run in _registered_runs()})
        known = f"running: {', '.join(others)}" if others else "no build is running"
        raise UsageError(
            f"No build with the run id {run_id!a} is running ({known}).",
            hint="The id of a run is the name of its run folder.",
        )
    if len(running) > 1:
        raise UsageError(
            f"More than one build is called {run_id}: {', '.join(map(str, running))}.",
            hint=f"Create an empty file `{CANCEL_MARKER}` in the folder of the one you mean.",
        )
    run = next(iter(running.values()))
    write_text(run.path / CANCEL_MARKER, "")
    return run.path


def _registered_runs() -> list[RunFolder]:
    """Builds that are alive; entries that killed ones left behind are removed."""
    alive: list[RunFolder] = []
    for entry in sorted(_folder().glob("*.json")):
        run = RunFolder(Path(str(read_object(entry).get("path"))))
        if run.path.is_dir() and run.is_busy():
            alive.append(run)
        else:
            entry.unlink(missing_ok=True)
    return alive


def _entry(run: RunFolder) -> Path:
    place = hashlib.sha256(str(run.path.resolve()).encode()).hexdigest()[:12]
    return _folder() / f"{run.run_id}-{place}.json"


def _folder() -> Path:
    return state_folder() / "forge"
