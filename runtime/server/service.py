"""What every endpoint works with: the owner of the model, its description, and the options of a request."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.scheduler.lanes import Lane
from mtplx.runtime.scheduler.owner import Health
from mtplx.runtime.scheduler.ticket import CancelReason, Ticket
from mtplx.runtime.scheduler.totals import Totals
from mtplx.runtime.server.answering import Delta, Parser, Thinking, answering
from mtplx.runtime.server.served import ServedModel
from mtplx.runtime.server.structured import Grammars

if TYPE_CHECKING:
    from mtplx.runtime.server.config import ServerConfig
    from mtplx.runtime.server.metrics import Metrics


class JobOwner(Protocol):
    """`mtplx.runtime.scheduler.owner.Owner`, or a script in tests."""

    @property
    def lane(self) -> Lane:
        """How requests share the model."""

    @property
    def totals(self) -> Totals:
        """What was done so far."""

    def submit(self, job: Job) -> Ticket:
        """Queue a job. Raises what is wrong with it, and QueueFullError."""

    def cancel(self, job_id: str, reason: CancelReason = CancelReason.ADMIN) -> bool:
        """End a job within one step; False where there is none of this name."""

    def release(self, ticket: Ticket) -> None:
        """Nobody reads this ticket any more."""

    def health(self) -> Health:
        """Whether requests are served."""

    def stats(self) -> dict[str, Any]:
        """Figures; JSON-serialisable."""

    def stop(self, grace_s: float) -> bool:
        """End; blocks. Returns whether the thread has ended."""


@dataclass(slots=True)
class Service:
    """One served model. `defaults` are the options of a request that says nothing; settings may replace them."""

    owner: JobOwner
    model: ServedModel
    config: ServerConfig
    metrics: Metrics
    defaults: GenerationOptions = field(default_factory=GenerationOptions)
    grammars: Grammars = field(init=False)

    def __post_init__(self) -> None:
        self.grammars = Grammars(self.model)

    def answer(
        self, job: Job, parser: Parser, thinking: Thinking | None = None
    ) -> AbstractAsyncContextManager[AsyncGenerator[Delta]]:
        """The answer to `job`, piece by piece; see `answering`."""
        return self.metrics.timed(answering(self.owner, job, parser, thinking))
