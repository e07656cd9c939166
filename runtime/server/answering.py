"""From a prompt to the pieces of an answer, the same for every API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mtplx.contracts.errors import InternalError
from mtplx.runtime.decode.result import Event, Generation
from mtplx.runtime.sampling.logprobs import TokenLogprobs
from mtplx.runtime.scheduler.errors import RequestCancelledError
from mtplx.runtime.scheduler.job import Job, Prefill
from mtplx.runtime.scheduler.ticket import CancelReason, Ticket
from mtplx.runtime.server.parts import Part


class Parser(Protocol):
    """Sorts the text of one answer into parts."""

    @property
    def has_tool_calls(self) -> bool:
        """Whether a call of a tool was found."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is wanted of this answer."""

    def feed(self, text: str) -> list[Part]:
        """The parts that `text` completes."""

    def finish(self) -> list[Part]:
        """What was held back."""


class JobQueue(Protocol):
    """What answering needs of `mtplx.runtime.scheduler.owner.Owner`."""

    def submit(self, job: Job) -> Ticket:
        """Queue a job."""

    def release(self, ticket: Ticket) -> None:
        """Nobody reads this ticket any more."""


class Delta(NamedTuple):
    """What is new in an answer. `progress` alone: the prompt is still being read.

    The last one has the `finish_reason` (`stop`, `length`, `tool_calls`), the Generation and how many of its tokens
    were reasoning.
    """

    parts: Sequence[Part] = ()
    logprobs: Sequence[TokenLogprobs] = ()
    tokens: int = 0
    progress: Prefill | None = None
    finish_reason: str | None = None
    generation: Generation | None = None
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Thinking:
    """The token ids that end reasoning, and whether the prompt began it."""

    end: tuple[int, ...]
    has_begun: bool
    start: tuple[int, ...] = ()

    def count(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` are reasoning, its markers included."""
        if not self.end:
            return 0
        begun = self.has_begun or bool(self.start and _find(tokens, self.start) == 0)
        if not begun:
            return 0
        end = _find(tokens, self.end)
        return len(tokens) if end < 0 else end + len(self.end)


@asynccontextmanager
async def answering(
    queue: JobQueue, job: Job, parser: Parser, thinking: Thinking | None = None
) -> AsyncIterator[AsyncGenerator[Delta]]:
    """Submit `job` and give its answer piece by piece; leaving the block early cancels it.

    Raises (on entry) what `Owner.submit` raises; the iterator raises what decoding fails with, and
    RequestCancelledError where the job was cancelled by somebody else, with the parts before it already given.
    """
    ticket = queue.submit(job)
    try:
        async with aclosing(_deltas(ticket, parser, thinking)) as deltas:
            yield deltas
    finally:
        queue.release(ticket)


async def _deltas(
    ticket: Ticket, parser: Parser, thinking: Thinking | None
) -> AsyncGenerator[Delta]:
    async with aclosing(ticket.signals()) as signals:
        async for signal in signals:
            if isinstance(signal, Prefill):
                yield Delta(progress=signal)
                continue
            # What comes behind the end that the parser has seen is not part of the answer.
            parts = [] if parser.is_finished else parser.feed(signal.text)
            if signal.finish_reason is None:
                if parser.is_finished:
                    ticket.cancel(CancelReason.ANSWERED)
                yield Delta(parts, signal.logprobs, len(signal.token_ids))
                continue
            parts += parser.finish()
            if signal.finish_reason == "interrupted" and not parser.is_finished:
                yield Delta(parts, signal.logprobs, len(signal.token_ids))
                by = ticket.cancel_reason or CancelReason.ADMIN
                raise RequestCancelledError(f"the answer was cut off ({by.value}).", reason=by)
            yield _last(signal, parts, parser, thinking)
            return
    raise InternalError("a job ended without its last event")


def _last(event: Event, parts: list[Part], parser: Parser, thinking: Thinking | None) -> Delta:
    generation = event.generation
    is_call = parser.has_tool_calls and event.finish_reason != "length"
    count = 0 if thinking is None or generation is None else thinking.count(generation.token_ids)
    return Delta(
        parts=parts,
        logprobs=event.logprobs,
        tokens=len(event.token_ids),
        finish_reason="tool_calls" if is_call else event.finish_reason,
        generation=generation,
        reasoning_tokens=count,
    )


def _find(tokens: Sequence[int], wanted: Sequence[int]) -> int:
    """Where `wanted` begins in `tokens`, -1 where it does not."""
    size = len(wanted)
    ends = range(len(tokens) - size + 1)
    return next((at for at in ends if tuple(tokens[at : at + size]) == tuple(wanted)), -1)
