"""Foreign code within a time limit."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# How long an ended thread may take to notice.
_GRACE_S = 1.0


class OvertimeError(Exception):
    """The work did not end in time."""


class _Stop(BaseException):
    """Raised inside the work; templates can't catch it."""


def run_bounded(work: Callable[[], T], seconds: float) -> T:
    """The result of `work`, run in a thread of its own and ended after `seconds`.

    Python code is ended between two of its steps; one step that takes long by itself is not. Raises what `work`
    raises, and OvertimeError.
    """
    job = _Job(work)
    thread = threading.Thread(target=job.run, name="mtplx-bounded", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        ident = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_Stop))
        thread.join(_GRACE_S)
        raise OvertimeError(f"did not end within {seconds:g} s")
    return job.result()


class _Job(Generic[T]):
    """The work and what came of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # it is raised again where the result is asked for
            self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._results[0]
