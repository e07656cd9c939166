"""A measuring process seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import BackendError
from mtplx.runtime.tuning.job import Job, Outcome, write_line

OWN = "mtplx.runtime.tuning.own_worker"


class Worker:
    """Runs jobs in a process of its own, one at a time. Use as a context manager.

    `options` follow the folder on the process's command line.

    Raises:
        BackendError: the process ended; the message has the last lines it wrote.
    """

    def __init__(self, module: str, folder: Path, *options: str) -> None:
        # A file, because a pipe that nobody reads would fill and stop the process.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, str(folder), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"},
        )
        try:
            self.about: dict[str, Any] = self._read()
        except BackendError:
            self.close()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: Job) -> Outcome:
        """Decode once."""
        assert self._process.stdin is not None
        try:
            write_line(self._process.stdin, asdict(job))
        except BrokenPipeError as error:
            raise self._failure() from error
        return Outcome(**self._read())

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                # A question that a dead process did not read would be written once more.
                with suppress(BrokenPipeError):
                    stream.close()
        self._process.wait()
        self._errors.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        found: dict[str, Any] = json.loads(line)
        return found

    def _failure(self) -> BackendError:
        self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        reason = " ".join(lines[-1:]) or "no message"
        return BackendError(f"{self._module} ended with code {self._process.returncode}: {reason}")
