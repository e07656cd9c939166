"""The endpoints: `/v1/chat/completions`, `/v1/completions`, `/v1/responses` and `/v1/models`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mtplx.runtime.server import sse
from mtplx.runtime.server.body import read_json
from mtplx.runtime.server.connection import while_connected
from mtplx.runtime.server.openai.chat import collect_chat, read_chat
from mtplx.runtime.server.openai.chat_stream import Chunk, chat_chunks
from mtplx.runtime.server.openai.choices import ChoiceDelta, answer_choices
from mtplx.runtime.server.openai.completions import (
    collect_completion,
    completion_chunks,
    read_completion,
)
from mtplx.runtime.server.openai.head import head_of
from mtplx.runtime.server.openai.models import list_models, show_model
from mtplx.runtime.server.openai.responses import create_response
from mtplx.runtime.server.openai.sampling import StreamOptions, require_streamed
from mtplx.runtime.server.openai.schema import ChatRequest, CompletionRequest
from mtplx.runtime.server.openai.tokens import texts_of
from mtplx.runtime.server.prompting import require_model
from mtplx.runtime.server.validation import parse

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service


def routes() -> list[Route]:
    """The endpoints of this API."""
    return [
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/responses", create_response, methods=["POST"]),
        Route("/v1/models", list_models, methods=["GET"]),
        Route("/v1/models/{name:path}", show_model, methods=["GET"]),
    ]


async def chat_completions(request: Request) -> Response:
    """Answer a conversation, once or several times."""
    service: Service = request.app.state.service
    body = await read_json(request)
    wanted = parse(ChatRequest, body)
    require_model(service, wanted.model)
    require_streamed(wanted.stream, wanted.stream_options)
    head = head_of(request)
    asked = await read_chat(service, wanted, body, head)
    texts = texts_of(service.model.tokenizer)
    deltas = answer_choices(service, asked.choices)
    if wanted.stream:
        has_usage = _wants_usage(wanted.stream_options)
        chunks = chat_chunks(head, asked, texts, deltas, include_usage=has_usage)
        return _stream(service, chunks, deltas)
    return await _whole(request, collect_chat(head, asked, texts, deltas), deltas)


async def completions(request: Request) -> Response:
    """Write prompts on."""
    service: Service = request.app.state.service
    wanted = parse(CompletionRequest, await read_json(request))
    require_model(service, wanted.model)
    require_streamed(wanted.stream, wanted.stream_options)
    head = head_of(request)
    asked = await read_completion(service, wanted, head)
    texts = texts_of(service.model.tokenizer)
    deltas = answer_choices(service, asked.choices)
    if wanted.stream:
        has_usage = _wants_usage(wanted.stream_options)
        chunks = completion_chunks(head, asked, texts, deltas, include_usage=has_usage)
        return _stream(service, chunks, deltas)
    return await _whole(request, collect_completion(head, asked, texts, deltas), deltas)


def _wants_usage(options: StreamOptions | None) -> bool:
    return options is not None and options.include_usage is True


async def _whole(
    request: Request, work: Coroutine[Any, Any, dict[str, Any]], deltas: AsyncGenerator[ChoiceDelta]
) -> Response:
    """An answer in one piece; the job behind `deltas` ends with the client."""
    async with aclosing(deltas):
        return JSONResponse(await while_connected(request.receive, work))


def _stream(
    service: Service, chunks: AsyncGenerator[Chunk], deltas: AsyncGenerator[ChoiceDelta]
) -> Response:
    return sse.EventStream(_encoded(chunks, deltas), keep_alive_s=service.config.keep_alive_s)


async def _encoded(
    chunks: AsyncGenerator[Chunk], deltas: AsyncGenerator[ChoiceDelta]
) -> AsyncGenerator[bytes]:
    """The events; closing them closes `chunks` and then the job behind `deltas`."""
    async with aclosing(deltas), aclosing(chunks):
        async for chunk in chunks:
            yield sse.event(chunk)
    yield sse.DONE
