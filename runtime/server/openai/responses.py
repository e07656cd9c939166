"""`/v1/responses`: stateless; a request brings its whole conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.server import sse
from mtplx.runtime.server.body import read_json
from mtplx.runtime.server.connection import while_connected
from mtplx.runtime.server.conversation import Conversation
from mtplx.runtime.server.openai.head import Head, head_of
from mtplx.runtime.server.openai.response_events import Event, ResponseEvents
from mtplx.runtime.server.openai.response_input import Conversed, converse
from mtplx.runtime.server.openai.response_logprobs import TextLogprobs
from mtplx.runtime.server.openai.response_schema import SEALED, FunctionTool, ResponseRequest
from mtplx.runtime.server.openai.thinking import Thought, read_thinking
from mtplx.runtime.server.openai.tokens import texts_of
from mtplx.runtime.server.prompting import Prompt, make_job, read_prompt, require_model
from mtplx.runtime.server.validation import parse

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service


async def create_response(request: Request) -> Response:
    """Answer a conversation."""
    service: Service = request.app.state.service
    body = await read_json(request)
    wanted = parse(ResponseRequest, body)
    require_model(service, wanted.model)
    if wanted.stream_options is not None and not wanted.stream:
        raise InvalidRequestError(
            "stream_options is set, and stream is not true.", key="stream_options"
        )
    head = head_of(request)
    options = _options(service, wanted)
    conversed = converse(wanted.instructions, wanted.input)
    try:
        thought = _thought(service, wanted)
        prompt = await read_prompt(service, _conversation(wanted, conversed, thought))
        job = await make_job(
            service, prompt, options, job_id=head.request_id, cache_key=head.cache_key
        )
    except InvalidRequestError as error:
        raise conversed.in_our_keys(error) from error
    made = ResponseEvents(
        _head(service, wanted, body, head, options),
        head.id_of(""),
        notes=(*thought.notes, *_without_effect(wanted), *prompt.rendered.notes, *conversed.notes),
        seals=wanted.wants(SEALED),
        logprobs=None
        if options.logprobs is None
        else TextLogprobs(texts_of(service.model.tokenizer), prompt.thinking),
    )
    events = _events(service, prompt, job, made)
    if wanted.stream:
        return sse.EventStream(
            _encoded(events),
            keep_alive_s=service.config.keep_alive_s,
            on_error=lambda error: _encode(made.failed(error)),
        )
    return JSONResponse(await while_connected(request.receive, _last(events)))


async def _events(
    service: Service, prompt: Prompt, job: Job, made: ResponseEvents
) -> AsyncGenerator[Event]:
    async with (
        service.answer(job, prompt.parser(), prompt.thinking) as deltas,
        aclosing(made.of(deltas)) as events,
    ):
        async for event in events:
            yield event


async def _last(events: AsyncGenerator[Event]) -> dict[str, Any]:
    """The response, which the last event has whole."""
    event: Event = {}
    async with aclosing(events):
        async for event in events:  # noqa: B007  # the last one is wanted
            pass
    response: dict[str, Any] = event["response"]
    return response


async def _encoded(events: AsyncGenerator[Event]) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        async for event in events:
            yield _encode(event)


def _encode(event: Event) -> bytes:
    return sse.event(event, name=event["type"])


def _options(service: Service, wanted: ResponseRequest) -> GenerationOptions:
    more = {"max_tokens": wanted.max_output_tokens, "logprobs": wanted.num_logprobs()}
    return wanted.options(service.model, service.defaults, more)


def _thought(service: Service, wanted: ResponseRequest) -> Thought:
    effort = None if wanted.reasoning is None else wanted.reasoning.effort
    tools = [_function(tool) for tool in wanted.tools or ()]
    return read_thinking(service.model, tools, effort=effort, key="reasoning.effort")


def _conversation(wanted: ResponseRequest, conversed: Conversed, thought: Thought) -> Conversation:
    return Conversation(
        messages=conversed.said,
        tools=[_function(tool) for tool in wanted.tools or ()],
        tool_choice=_choice(wanted),
        parallel_tool_calls=wanted.parallel_tool_calls is not False,
        response_format=_format(wanted),
        enable_thinking=thought.is_enabled,
        template_options=thought.variables,
    )


def _function(tool: FunctionTool) -> dict[str, Any]:
    """A tool in the shape of chat completions."""
    keys = {"name", "description", "parameters", "strict"}
    return {"type": "function", "function": tool.model_dump(include=keys, exclude_none=True)}


def _choice(wanted: ResponseRequest) -> str | dict[str, Any]:
    choice = wanted.tool_choice
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    return {"type": "function", "function": {"name": choice.name}}


def _format(wanted: ResponseRequest) -> dict[str, Any] | None:
    form = None if wanted.text is None else wanted.text.format
    if form is None:
        return None
    said = form.model_dump(by_alias=True, exclude_none=True)
    kind = said.pop("type")
    return {"type": kind, "json_schema": said} if kind == "json_schema" else {"type": kind}


def _without_effect(wanted: ResponseRequest) -> list[str]:
    """What a request may say and nothing here does."""
    reasoning = wanted.reasoning
    notes = []
    if reasoning is not None and (reasoning.summary or reasoning.generate_summary):
        notes.append("reasoning is not summarised, it is in content as it is")
    return notes


def _head(
    service: Service,
    wanted: ResponseRequest,
    body: dict[str, Any],
    head: Head,
    options: GenerationOptions,
) -> dict[str, Any]:
    """What holds of the response from its beginning to its end, most of it as it was asked for."""
    defaults = service.model.sampler_defaults
    reasoning = wanted.reasoning
    return {
        "id": head.id_of("resp_"),
        "object": "response",
        "created_at": head.created,
        "model": head.model,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": wanted.instructions,
        "max_output_tokens": options.max_tokens,
        "max_tool_calls": wanted.max_tool_calls,
        "output": [],
        "parallel_tool_calls": wanted.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": None if reasoning is None else reasoning.effort, "summary": None},
        "store": False,
        "temperature": _said(options.temperature, defaults.get("temperature")),
        "text": {"format": {"type": "text"}} | (body.get("text") or {}),
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": options.logprobs or 0,
        "top_p": _said(options.top_p, defaults.get("top_p")),
        "truncation": "disabled",
        "usage": None,
        "user": wanted.user,
        "metadata": wanted.metadata or {},
    }


def _said(value: float | None, default: float | None) -> float | None:
    return default if value is None else value
