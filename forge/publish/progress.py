"""The state of an upload, under the names of the public format."""

import time
from collections.abc import Callable
from typing import Any, Final

from mtplx.forge.meter import Meter
from mtplx.forge.publish.upload import Changes

_REPORT_EVERY_S: Final = 0.5

Report = Callable[[dict[str, Any]], None]
"""Told the state of the upload, with the keys of `publish.json`; what it raises ends the upload."""


class UploadProgress:
    """Turns bytes into the states of `publish.json`, a few a second."""

    def __init__(self, report: Report, repo: str, created: bool) -> None:
        self._report = report
        self._repo = repo
        self._created = created
        self._meter = Meter(0)
        self._next_s = 0.0
        self._unchanged = 0

    def start(self, changes: Changes) -> None:
        """Begin, or begin again, with what has to be sent."""
        self._meter = Meter(changes.size)
        self._unchanged = len(changes.unchanged)
        self._next_s = 0.0
        self.advance(0)

    def advance(self, done: int) -> None:
        """Note that `done` bytes are on the hub."""
        now = time.monotonic()
        if now >= self._next_s or done == self._meter.total:
            self._next_s = now + _REPORT_EVERY_S
            self._meter.feed(now, done)
            self._tell(None)

    def finish(self, revision: str) -> None:
        """Tell that everything is visible at commit `revision`."""
        self._meter.feed(time.monotonic(), self._meter.total)
        self._tell(revision)

    def _tell(self, revision: str | None) -> None:
        state = self._meter.to_json()
        self._report(
            {
                "repo": self._repo,
                "repo_created": self._created,
                "bytes_uploaded": state["bytes_on_disk"],
                "total_bytes": state["total_bytes"],
                "mb_per_s": state["mb_per_s"],
                "eta_s": state["eta_s"],
                "stalled_s": state["stalled_s"],
                "files_unchanged": self._unchanged,
                "revision": revision,
                "finished": revision is not None,
            }
        )
