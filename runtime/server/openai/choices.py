"""Several answers to one request, one after another."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.scheduler.errors import QueueFullError, RequestCancelledError
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.scheduler.ticket import CancelReason
from mtplx.runtime.server.answering import Delta, Parser, Thinking

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service

_MAX_WAIT_S: Final = 1.0


class Choice(NamedTuple):
    """One answer to make. `is_new_prompt` says that the choice before it, if any, has another prompt."""

    job: Job
    parser: Callable[[], Parser]
    thinking: Thinking | None = None
    is_new_prompt: bool = True


class ChoiceDelta(NamedTuple):
    """What is new in the choice of this number."""

    number: int
    delta: Delta


def seeded(options: GenerationOptions, number: int) -> GenerationOptions:
    """The options of the choice `number` of a prompt: the first has the seed that was asked for, others the next ones.

    Without a seed each draws its own.
    """
    if options.seed is None or number == 0:
        return options
    return dataclasses.replace(options, seed=(options.seed + number) % 2**64)


async def answer_choices(
    service: Service, choices: Sequence[Choice]
) -> AsyncGenerator[ChoiceDelta]:
    """The answers to `choices` in their order, within the deadline of one request.

    The first is refused where the queue is full; those that follow wait for room.
    """
    began = time.monotonic()
    for index, choice in enumerate(choices):
        async with aclosing(_answer(service, choice, began, waits=index > 0)) as deltas:
            async for delta in deltas:
                yield ChoiceDelta(index, delta)


async def _answer(
    service: Service, choice: Choice, began: float, *, waits: bool
) -> AsyncGenerator[Delta]:
    while True:
        job = _within_deadline(choice.job, began) if waits else choice.job
        try:
            async with service.answer(job, choice.parser(), choice.thinking) as deltas:
                async for delta in deltas:
                    yield delta
            return
        except QueueFullError as error:
            if not waits:
                raise
            pause = min(error.retry_after_s, _MAX_WAIT_S)
        await asyncio.sleep(pause)


def _within_deadline(job: Job, began: float) -> Job:
    """`job` with what is left of the request's time."""
    if job.deadline_s is None:
        return job
    left = job.deadline_s - (time.monotonic() - began)
    if left <= 0:
        raise RequestCancelledError(
            "the request's deadline has passed.", reason=CancelReason.DEADLINE
        )
    return dataclasses.replace(job, deadline_s=left)
