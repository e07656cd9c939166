"""One submitted job, seen from both sides: the owner's thread writes, an event loop reads."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from enum import StrEnum

from mtplx.runtime.scheduler.job import Job, Signal


class CancelReason(StrEnum):
    """Who ended a job before its end; `answered` is the server itself, with an answer that is complete."""

    ANSWERED = "answered"
    CLIENT = "client"
    DEADLINE = "deadline"
    ADMIN = "admin"
    SHUTDOWN = "shutdown"


class Ticket:
    """The signals of one job, in order, until its last event or an error.

    Made on the event loop that reads it. `cancel` may be called from any thread, any number of times: the first
    reason counts. A job that is cancelled ends with an event whose finish reason is `interrupted`; one that waits in
    the queue never begins and ends without an event.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.submitted = time.monotonic()
        self.cancel_reason: CancelReason | None = None
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._signals: deque[Signal] = deque()
        self._error: BaseException | None = None
        self._is_closed = False
        self._is_told = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def deadline(self) -> float | None:
        """The time on the monotonic clock at which the job ends."""
        return None if self.job.deadline_s is None else self.submitted + self.job.deadline_s

    @property
    def is_cancelled(self) -> bool:
        """Whether the job should end; a deadline that has passed cancels it."""
        if (
            self.cancel_reason is None
            and self.deadline is not None
            and time.monotonic() >= self.deadline
        ):
            self.cancel(CancelReason.DEADLINE)
        return self.cancel_reason is not None

    def poll(self) -> bool:
        """`is_cancelled`, to be handed to what runs the job."""
        return self.is_cancelled

    def watch_deadline(self, expire: Callable[[], None]) -> None:
        """Call `expire` on the event loop at the deadline, if there is one and the job has not ended by then."""
        if self.job.deadline_s is not None:
            self._timer = self._loop.call_later(self.job.deadline_s, expire)

    def cancel(self, reason: CancelReason) -> None:
        """End the job within one step."""
        if self.cancel_reason is None:
            self.cancel_reason = reason

    def put(self, signal: Signal) -> None:
        """Hand over a signal (owner's thread)."""
        self._signals.append(signal)
        self._tell()

    def close(self, error: BaseException | None = None) -> None:
        """No signal comes after those handed over; `error` is raised behind them (owner's thread)."""
        self._error = error
        self._is_closed = True
        self._tell()

    async def signals(self) -> AsyncGenerator[Signal]:
        """All signals; ends after the last. Raises what the job failed with."""
        try:
            while True:
                # In this order: what is written between the two lines sets the event again.
                self._is_told = False
                self._ready.clear()
                is_closed = self._is_closed
                while self._signals:
                    yield self._signals.popleft()
                if is_closed:
                    break
                await self._ready.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
        if self._error is not None:
            raise self._error

    def _tell(self) -> None:
        """Wake the reader; one call for many signals, because each costs a system call."""
        if self._is_told:
            return
        self._is_told = True
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:
            # The loop has been closed: nobody reads any more.
            self.cancel(CancelReason.CLIENT)
