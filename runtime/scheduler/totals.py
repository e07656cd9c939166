"""What an owner has done since it began."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from mtplx.contracts.errors import MTPLXError
from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.decode.result import Event
from mtplx.runtime.scheduler.ticket import CancelReason, Ticket

_RECENT = 256


@dataclass(slots=True)
class Totals:
    """Counts over all requests; of queue and service times the latest ones, in seconds."""

    finished: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    cancelled: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    drafted: list[int] = field(default_factory=lambda: [0] * MAX_DEPTH)
    accepted: list[int] = field(default_factory=lambda: [0] * MAX_DEPTH)
    queue_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    service_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def seconds_per_request(self) -> float | None:
        """Mean time on the model of the latest requests."""
        times = list(self.service_seconds)
        return sum(times) / len(times) if times else None

    def record_cancel(self, reason: CancelReason) -> None:
        """Count a job that was cancelled."""
        self.cancelled[reason.value] += 1

    def record(
        self, ticket: Ticket, last: Event | None, error: BaseException | None, seconds: float
    ) -> None:
        """Count a job that has run; `last` is its last event."""
        self.service_seconds.append(seconds)
        if error is not None:
            self.failed[error.code if isinstance(error, MTPLXError) else "internal"] += 1
        elif last is None or last.finish_reason in (None, "interrupted"):
            self.record_cancel(ticket.cancel_reason or CancelReason.ADMIN)
        else:
            self.finished[last.finish_reason] += 1
        if last is None or last.generation is None:
            return
        stats = last.generation.stats
        self.prompt_tokens += stats.prompt_tokens
        self.cached_tokens += stats.reused_tokens
        self.completion_tokens += stats.completion_tokens
        for depth in range(MAX_DEPTH):
            self.drafted[depth] += stats.drafted_by_depth[depth]
            self.accepted[depth] += stats.accepted_by_depth[depth]

    def to_json(self) -> dict[str, Any]:
        """All counts under the names of the server's statistics."""
        deepest = max((d + 1 for d, n in enumerate(self.drafted) if n), default=0)
        pairs = zip(self.accepted[:deepest], self.drafted[:deepest], strict=True)
        return {
            "requests_finished": dict(self.finished),
            "requests_failed": dict(self.failed),
            "requests_cancelled": dict(self.cancelled),
            "requests_refused": self.refused,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "drafted_by_depth": self.drafted[:deepest],
            "accepted_by_depth": self.accepted[:deepest],
            "acceptance_by_depth": [kept / tried for kept, tried in pairs],
            "seconds_per_request": self.seconds_per_request,
        }
