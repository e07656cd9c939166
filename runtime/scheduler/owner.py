"""The one thread that touches the model, and the queue in front of it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from mtplx.contracts.errors import InternalError, MTPLXError, ResourceError
from mtplx.runtime.decode.result import Event
from mtplx.runtime.scheduler.backend import Backend
from mtplx.runtime.scheduler.errors import NotReadyError, QueueFullError, RequestCancelledError
from mtplx.runtime.scheduler.job import Job, Prefill
from mtplx.runtime.scheduler.lanes import Lane
from mtplx.runtime.scheduler.ticket import CancelReason, Ticket
from mtplx.runtime.scheduler.totals import Totals

log = logging.getLogger("mtplx.scheduler")

# A guess of how long a request takes before one has ended.
_FIRST_GUESS_S = 10.0


class Health(NamedTuple):
    """`is_ready`: loaded, not stopping, and not stuck. `reason` says which of these is not so."""

    is_ready: bool
    reason: str | None
    active: int
    queued: int
    seconds_since_step: float | None


class Owner:
    """Runs jobs on a backend that is opened, used and closed on one thread of its own.

    `max_queued_tokens` bounds prompts and answers that wait. A step that takes longer than `watchdog_s` while there
    is work makes `health` say so.
    """

    def __init__(
        self,
        open_backend: Callable[[], Backend],
        lane: Lane,
        *,
        max_queued_tokens: int = 2_000_000,
        watchdog_s: float = 120.0,
    ) -> None:
        self.lane = lane
        self.totals = Totals()
        self.backend: Backend | None = None
        self._open_backend = open_backend
        self._max_queued_tokens = max_queued_tokens
        self._watchdog_s = watchdog_s
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._active: Ticket | None = None
        self._is_stopping = False
        self._error: BaseException | None = None
        self._loaded = threading.Event()
        self._last_step = time.monotonic()
        self._thread = threading.Thread(target=self._main, name="mtplx-owner", daemon=True)

    def start(self) -> None:
        """Begin to load; returns at once."""
        self._thread.start()

    def wait_loaded(self) -> Backend:
        """Wait until jobs can be run. Raises what loading failed with."""
        self._loaded.wait()
        if self._error is not None:
            raise self._error
        assert self.backend is not None, "loaded without an error"
        return self.backend

    def submit(self, job: Job) -> Ticket:
        """Queue `job`; call it on the event loop that reads the ticket.

        Raises:
            NotReadyError: the model is not loaded, or the owner stops.
            QueueFullError: the lane takes no more.
            MTPLXError: what `Backend.check` raises.
        """
        if self.backend is None or self._is_stopping:
            state = "the server is stopping" if self._is_stopping else "the model is being loaded"
            raise NotReadyError(f"{state}.", hint="Try again later.")
        self.backend.check(job)
        ticket = Ticket(job)
        with self._changed:
            self._admit(job)
            self._waiting.append(ticket)
            self._changed.notify()
        ticket.watch_deadline(lambda: self._cancel(ticket, CancelReason.DEADLINE))
        return ticket

    def cancel(self, job_id: str, reason: CancelReason = CancelReason.ADMIN) -> bool:
        """End the job called `job_id` within one step; False where there is none."""
        with self._changed:
            tickets = [*self._waiting, *([self._active] if self._active else [])]
        found = [ticket for ticket in tickets if ticket.job.id == job_id]
        for ticket in found:
            self._cancel(ticket, reason)
        return bool(found)

    def release(self, ticket: Ticket) -> None:
        """The reader has gone: end the job if it has not ended."""
        self._cancel(ticket, CancelReason.CLIENT)

    def health(self) -> Health:
        """Whether requests are served."""
        with self._changed:
            active, queued = int(self._active is not None), len(self._waiting)
        since = time.monotonic() - self._last_step if active or queued else None
        reason = None
        if self._error is not None:
            reason = f"the model could not be loaded: {self._error}"
        elif not self._loaded.is_set():
            reason = "the model is being loaded"
        elif self._is_stopping:
            reason = "the server is stopping"
        elif since is not None and since > self._watchdog_s:
            reason = f"no step has ended for {since:.0f} s while {active + queued} requests wait"
        return Health(reason is None, reason, active, queued, since)

    def stats(self) -> dict[str, Any]:
        """Figures for the server's statistics; JSON-serialisable."""
        health = self.health()
        backend = {} if self.backend is None else self.backend.stats()
        return {
            "scheduler_mode": self.lane.mode.value,
            "scheduler_policy": self.lane.policy,
            "active_requests": health.active,
            "queued_requests": health.queued,
            **self.totals.to_json(),
            **backend,
        }

    def stop(self, grace_s: float) -> bool:
        """Take no more jobs, let those that run or wait end for `grace_s`, then cut them.

        Returns whether the thread has ended; a step that never returns keeps it.
        """
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join(grace_s)
        if self._thread.is_alive():
            with self._changed:
                tickets = [*self._waiting, *([self._active] if self._active else [])]
            for ticket in tickets:
                self._cancel(ticket, CancelReason.SHUTDOWN)
            self._thread.join(max(grace_s, 1.0))
        return not self._thread.is_alive()

    def _admit(self, job: Job) -> None:
        """Raise QueueFullError unless the lane takes one more; the lock is held."""
        queued = len(self._waiting)
        decision = self.lane.decide(is_busy=self._active is not None, queued=queued)
        tokens = sum(_size(ticket.job) for ticket in self._waiting) + _size(job)
        is_too_much = bool(queued) and tokens > self._max_queued_tokens
        if decision == "refuse" or is_too_much:
            self.totals.refused += 1
            each = self.totals.seconds_per_request or _FIRST_GUESS_S
            raise QueueFullError(
                f"the server is busy: {queued} requests wait ({self.lane.mode.value}: "
                f"{self.lane.policy})",
                retry_after_s=max(1, round(each * (queued + 1))),
                hint="Send the request again after the seconds of Retry-After.",
            )

    def _cancel(self, ticket: Ticket, reason: CancelReason) -> None:
        with self._changed:
            ticket.cancel(reason)
            try:
                self._waiting.remove(ticket)
            except ValueError:
                return  # it runs, or has ended
        self._drop(ticket)

    def _drop(self, ticket: Ticket) -> None:
        """Close a ticket that never began."""
        reason = ticket.cancel_reason or CancelReason.ADMIN
        self.totals.record_cancel(reason)
        error = RequestCancelledError(
            f"the request was cancelled before it began ({reason.value}).", reason=reason
        )
        ticket.close(error)

    def _main(self) -> None:
        try:
            self.backend = self._open_backend()
        except BaseException as error:  # the thread that waits raises it
            self._error = error
            return
        finally:
            self._loaded.set()
        while (ticket := self._next()) is not None:
            try:
                self._serve(ticket)
            finally:
                with self._changed:
                    self._active = None
                    self._last_step = time.monotonic()

    def _next(self) -> Ticket | None:
        with self._changed:
            while not self._waiting:
                if self._is_stopping:
                    return None
                self._changed.wait()
            self._active = self._waiting.popleft()
            self._last_step = time.monotonic()
            return self._active

    def _serve(self, ticket: Ticket) -> None:
        if ticket.is_cancelled:
            self._drop(ticket)
            return
        assert self.backend is not None, "jobs are taken after loading"
        started = time.monotonic()
        self.totals.queue_seconds.append(started - ticket.submitted)
        last: Event | None = None
        error: BaseException | None = None
        try:
            for event in self.backend.run(ticket.job, ticket.poll, self._on_prefill(ticket)):
                self._last_step = time.monotonic()
                ticket.put(event)
                last = event
        except MTPLXError as failure:
            error = failure
        except MemoryError as failure:
            error = ResourceError(f"memory ran out while decoding: {failure}")
        except RuntimeError as failure:
            error = _from_mlx(failure)
        except Exception as failure:  # one request must not end the server
            log.exception("request %s failed", ticket.job.id)
            error = InternalError(f"{type(failure).__name__} while decoding; the log has more.")
        self.totals.record(ticket, last, error, time.monotonic() - started)
        ticket.close(error)

    def _on_prefill(self, ticket: Ticket) -> Callable[[int, int], None]:
        def report(done: int, total: int) -> None:
            self._last_step = time.monotonic()
            ticket.put(Prefill(done, total))

        return report


def _size(job: Job) -> int:
    return len(job.prompt) + job.options.max_tokens


def _from_mlx(failure: RuntimeError) -> MTPLXError:
    """MLX reports a failed allocation as a RuntimeError with one of these words."""
    text = str(failure)
    if any(word in text.lower() for word in ("malloc", "out of memory", "allocate", "memory")):
        return ResourceError(
            f"memory ran out while decoding: {text}",
            hint="Shorten the prompt, or start the server with a smaller --context-window or --kv-bits 8.",
        )
    log.error("decoding failed", exc_info=failure)
    return InternalError("MLX failed while decoding; the log has more.")
