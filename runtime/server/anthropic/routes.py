"""The endpoints: `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mtplx.contracts.errors import InvalidRequestError, PromptTooLongError
from mtplx.runtime.decode.options import GenerationOptions, change_options
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.server import sse
from mtplx.runtime.server.anthropic.conversation import Asked, read
from mtplx.runtime.server.anthropic.message import collect
from mtplx.runtime.server.anthropic.schema import CountTokensRequest, MessagesRequest
from mtplx.runtime.server.anthropic.stream import Event, Head, message_events
from mtplx.runtime.server.body import read_json
from mtplx.runtime.server.connection import while_connected
from mtplx.runtime.server.prompting import make_job, require_model
from mtplx.runtime.server.requests import KEY_NAME, REQUEST_ID
from mtplx.runtime.server.validation import parse

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service


def routes() -> list[Route]:
    """The endpoints of this API."""
    return [
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    ]


async def messages(request: Request) -> Response:
    """Answer a conversation."""
    service: Service = request.app.state.service
    wanted = parse(MessagesRequest, await read_json(request))
    require_model(service, wanted.model)
    options = _options(service, wanted)
    asked = await read(service, wanted)
    state = request.scope["state"]
    try:
        job = await make_job(
            service,
            asked.prompt,
            options,
            job_id=state[REQUEST_ID],
            cache_key=state[KEY_NAME] or "",
        )
    except InvalidRequestError as error:
        raise asked.in_our_keys(error) from error
    events = _events(service, asked, job, _head(service, wanted, asked, job))
    if wanted.stream:
        return sse.EventStream(_encoded(events), keep_alive_s=service.config.keep_alive_s)
    return JSONResponse(await while_connected(request.receive, collect(events)))


async def count_tokens(request: Request) -> Response:
    """Count the tokens of the prompt that `/v1/messages` would read."""
    service: Service = request.app.state.service
    wanted = parse(CountTokensRequest, await read_json(request))
    require_model(service, wanted.model)
    asked = await read(service, wanted)
    counted: dict[str, Any] = {"input_tokens": asked.num_tokens}
    if asked.edits is not None:
        counted["context_management"] = {"original_input_tokens": asked.original_tokens}
    return JSONResponse(counted)


def _options(service: Service, wanted: MessagesRequest) -> GenerationOptions:
    said = {
        key: value
        for key in ("temperature", "top_p", "top_k")
        if (value := getattr(wanted, key)) is not None
    }
    said |= wanted.changes(service.model, service.defaults)
    return change_options(
        service.defaults,
        {**said, "max_tokens": wanted.max_tokens, "stop": tuple(wanted.stop_sequences)},
    )


def _head(service: Service, wanted: MessagesRequest, asked: Asked, job: Job) -> Head:
    thinking = wanted.thinking
    is_omitted = thinking is not None and getattr(thinking, "display", None) == "omitted"
    return Head(
        id=f"msg_{job.id.removeprefix('req_')}",
        model=service.model.name,
        prompt_tokens=asked.num_tokens,
        max_tokens=wanted.max_tokens,
        shows_thinking=not is_omitted,
        notes=asked.notes,
        edits=asked.edits,
    )


async def _events(service: Service, asked: Asked, job: Job, head: Head) -> AsyncGenerator[Event]:
    prompt = asked.prompt
    try:
        async with (
            service.answer(job, prompt.parser(), prompt.thinking) as deltas,
            aclosing(message_events(head, deltas)) as events,
        ):
            async for event in events:
                yield event
    except PromptTooLongError as error:
        # In words that clients know, and shorten the conversation at.
        raise PromptTooLongError(f"prompt is too long: {error.message}", hint=error.hint) from error


async def _encoded(events: AsyncGenerator[Event]) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        async for event in events:
            yield sse.event(event, name=event["type"])
