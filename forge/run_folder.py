"""The folder of one build: what it was asked, how far it came, and what its finished phases found.

Every phase has a JSON file. While it runs the file tells progress; when it is done the file says
`"finished": true` and holds the phase's result, which a resumed build takes from there.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from mtplx.contracts.errors import UsageError
from mtplx.contracts.files import write_json
from mtplx.contracts.json_object import read_object

PHASES: Final = ("download", "convert", "calibrate", "verify", "brand")
CANCEL_MARKER: Final = "cancel"
_REQUEST = "request.json"
_LOCK = ".lock"
_WRITE_EVERY_S = 1.0


class RunFolder:
    """`path` holds the JSON files and, until it is branded, the artifact being made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next_write_s = 0.0

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.path.name

    @property
    def artifact(self) -> Path:
        """Where the artifact grows before it gets its name."""
        return self.path / "artifact"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep the run to this process. A marker that cancelled an earlier attempt is removed.

        Raises UsageError when another process works on the run.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / _LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UsageError(
                f"{self.path} is being built by another process.",
                hint=f"Wait for it, or run `mtplx forge cancel {self.run_id}`.",
            ) from None
        try:
            (self.path / CANCEL_MARKER).unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    def is_busy(self) -> bool:
        """Whether a process holds the lock."""
        try:
            with FileLock(self.path / _LOCK, timeout=0):
                return False
        except Timeout:
            return True

    def request(self) -> dict[str, Any] | None:
        """What the run was started with; None for a new run."""
        return self._read(_REQUEST)

    def start(self, request: Mapping[str, Any]) -> None:
        """Record what a new run is asked."""
        write_json(self.path / _REQUEST, dict(request))

    def result(self, phase: str) -> dict[str, Any] | None:
        """The result of a finished phase; None when it is still to be done."""
        found = self._read(f"{phase}.json")
        return found if found is not None and found.get("finished") is True else None

    def partial(self, phase: str) -> dict[str, Any]:
        """What the phase wrote last, finished or not."""
        return self._read(f"{phase}.json") or {}

    def progress(self, phase: str, values: Mapping[str, Any], *, at_once: bool = False) -> None:
        """Tell how far the phase is, once a second at most unless `at_once`.

        Raises KeyboardInterrupt when the run was cancelled meanwhile.
        """
        if (self.path / CANCEL_MARKER).exists():
            raise KeyboardInterrupt(f"cancelled by `mtplx forge cancel {self.run_id}`")
        now = time.monotonic()
        if at_once or now >= self._next_write_s:
            self._next_write_s = now + _WRITE_EVERY_S
            write_json(self.path / f"{phase}.json", {"finished": False, **values})

    def finish(self, phase: str, values: Mapping[str, Any]) -> None:
        """Record the phase's result; a resumed build will not do the phase again."""
        write_json(self.path / f"{phase}.json", {"finished": True, **values})

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """Write one of the files about the whole run."""
        write_json(self.path / f"{name}.json", dict(values))

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        if not path.exists():
            return None
        return read_object(path, hint=f"Remove {self.path} and build again.")
