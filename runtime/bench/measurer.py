"""What measures: a process of its own for mtplx, and one for stock mlx-lm."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import BackendError, MTPLXError
from mtplx.runtime.bench.protocol import raise_told, to_question
from mtplx.runtime.bench.tasks import (
    CostsTask,
    DecodeTask,
    MemoryTask,
    MemoryUse,
    PrefillTask,
    PrefillTimes,
    Room,
    RoomTask,
    RoundTimes,
    Task,
)
from mtplx.runtime.tuning.job import Job, Outcome, write_line
from mtplx.runtime.tuning.worker import Worker

OWN = "mtplx.runtime.bench.own.process"
STOCK = "mtplx.runtime.bench.stock_process"

# How Python begins the last line, or lines, of a traceback.
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Exit|Interrupt|Iteration)(:|$)")
_LONGEST_REASON = 300


class Measurer(ABC):
    """Answers tasks, one at a time; `about` describes it (see `own.process` and `stock_process`).

    Every task may raise the MTPLXError that it met, or BackendError when the process ended.
    """

    about: dict[str, Any]

    @abstractmethod
    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one question, both objects of JSON."""

    def run(self, job: Job) -> Outcome:
        """Decode once; `job` is a DecodeTask or what it adds nothing to."""
        task = (
            job
            if isinstance(job, DecodeTask)
            else DecodeTask(job.prompt, job.max_tokens, job.depth)
        )
        return Outcome(**self.answer(task))

    def prefill(self, task: PrefillTask) -> PrefillTimes:
        """Read a prompt."""
        return PrefillTimes(**self.answer(task))

    def memory(self, task: MemoryTask) -> MemoryUse:
        """Read a prompt and decode, watching memory."""
        return MemoryUse(**self.answer(task))

    def costs(self, task: CostsTask) -> RoundTimes:
        """Time the parts of rounds once."""
        return RoundTimes(**self.answer(task))

    def room(self) -> Room:
        """What memory a context takes."""
        return Room(**self.answer(RoomTask()))

    def answer(self, task: Task) -> dict[str, Any]:
        """The fields of the answer to any task."""
        answer = self.ask(to_question(task))
        raise_told(answer)
        return answer


class MeasuringProcess(Measurer, Worker):
    """A process that runs `module`, called `title` in messages; use as a context manager.

    Raises:
        MTPLXError: the model cannot be loaded.
        BackendError: the process ended; the message has the exception it ended with.
    """

    def __init__(self, title: str, module: str, folder: Path, *options: str) -> None:
        self._title = title
        Worker.__init__(self, module, folder, *options)
        try:
            raise_told(self.about)
        except MTPLXError:
            self.close()
            raise

    def __enter__(self) -> MeasuringProcess:
        return self

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the process."""
        assert self._process.stdin is not None
        try:
            write_line(self._process.stdin, dict(question))
        except BrokenPipeError as error:
            raise self._failure() from error
        return self._read()

    def _failure(self) -> BackendError:
        code = self._process.wait()
        self._errors.seek(0)
        reason = last_exception(self._errors.read())
        return BackendError(f"the process of {self._title} ended with code {code}: {reason}")


def last_exception(text: str) -> str:
    """The last exception of a traceback on one line, or the last line of a text without one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [number for number, line in enumerate(lines) if _EXCEPTION.match(line)]
    reason = " ".join(lines[named[-1] if named else -1 :])
    if not reason:
        return "no message"
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."


def open_own(folder: Path, kv_bits: int | None = None) -> AbstractContextManager[Measurer]:
    """A process that decodes with mtplx."""
    return MeasuringProcess("mtplx", OWN, folder, *([] if kv_bits is None else [str(kv_bits)]))


def open_stock(folder: Path) -> AbstractContextManager[Measurer]:
    """A process that decodes with stock mlx-lm; no CostsTask and no RoomTask."""
    return MeasuringProcess("mlx-lm", STOCK, folder)
