"""`/openapi.json`: every path, what it takes and what it answers, made of the models that requests are checked with.

What a schema cannot say, as that a temperature needs a model that samples, is told by the answer to a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mtplx.runtime.server.anthropic.schema import CountTokensRequest, MessagesRequest
from mtplx.runtime.server.errors import is_anthropic
from mtplx.runtime.server.openai.response_schema import ResponseRequest
from mtplx.runtime.server.openai.schema import ChatRequest, CompletionRequest
from mtplx.runtime.server.openapi import answers, anthropic_answers, openai_answers
from mtplx.runtime.server.settings import Changes

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service

_REF: Final = "#/components/schemas/{model}"
_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"
# One event of a stream; the data is JSON, but for the last event of OpenAI's older streams.
_EVENT: Final = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}


class _Operation(NamedTuple):
    """A method of a path. `answers` None is text; `streams` says that a request may ask for events instead."""

    path: str
    method: str
    summary: str
    answer: type[BaseModel] | None
    takes: type[BaseModel] | None = None
    streams: bool = False


_OPERATIONS: Final = (
    _Operation("/", "get", "Every path and its methods", answers.Index),
    _Operation("/openapi.json", "get", "This document", None),
    _Operation("/health/live", "get", "Whether the process answers", answers.Live),
    _Operation("/health/ready", "get", "Whether requests are served", answers.Ready),
    _Operation("/health", "get", "Whether requests are served", answers.Ready),
    _Operation("/metrics", "get", "Counts, for Prometheus", None),
    _Operation("/v1/mtplx/stats", "get", "What was done so far", answers.Stats),
    _Operation("/v1/mtplx/settings", "get", "Options that may change", answers.Settings),
    _Operation(
        "/v1/mtplx/settings",
        "post",
        "Change all of these options or none",
        answers.Settings,
        Changes,
    ),
    _Operation(
        "/v1/mtplx/cancel/{request_id}", "post", "End a request within one step", answers.Cancelled
    ),
    _Operation(
        "/v1/chat/completions",
        "post",
        "Answer a conversation",
        openai_answers.ChatCompletion,
        ChatRequest,
        streams=True,
    ),
    _Operation(
        "/v1/completions",
        "post",
        "Write prompts on",
        openai_answers.Completion,
        CompletionRequest,
        streams=True,
    ),
    _Operation(
        "/v1/responses",
        "post",
        "Answer a conversation, item by item",
        openai_answers.Response,
        ResponseRequest,
        streams=True,
    ),
    _Operation("/v1/models", "get", "The served model's names", openai_answers.ModelList),
    _Operation("/v1/models/{name}", "get", "One of these names", openai_answers.Model),
    _Operation(
        "/v1/messages",
        "post",
        "Answer a conversation",
        anthropic_answers.Message,
        MessagesRequest,
        streams=True,
    ),
    _Operation(
        "/v1/messages/count_tokens",
        "post",
        "Count the tokens of a prompt",
        anthropic_answers.Counted,
        CountTokensRequest,
    ),
)


def routes() -> list[Route]:
    """The endpoint of the document."""
    return [Route("/openapi.json", show)]


async def show(request: Request) -> Response:
    """The document."""
    service: Service = request.app.state.service
    return JSONResponse(document(service.config.version))


@lru_cache(maxsize=2)
def document(version: str) -> dict[str, Any]:
    """The OpenAPI document of a server of mtplx `version`."""
    takes = [one.takes for one in _OPERATIONS if one.takes is not None]
    gives = [one.answer for one in _OPERATIONS if one.answer is not None]
    gives += [answers.OpenAIError, answers.AnthropicError]
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        *((model, "validation") for model in takes),
        *((model, "serialization") for model in gives),
    ]
    # The same model may answer at several paths.
    names, schemas = models_json_schema(list(dict.fromkeys(models)), ref_template=_REF)
    refs = {model: schema for (model, _), schema in names.items()}
    paths: dict[str, dict[str, Any]] = {}
    for one in _OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _described(one, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mtplx", "version": version or "0"},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }


def _described(one: _Operation, refs: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    error = answers.AnthropicError if is_anthropic(one.path) else answers.OpenAIError
    content: dict[str, Any] = {}
    if one.answer is not None:
        content[_JSON] = {"schema": refs[one.answer]}
    else:
        content[_JSON if one.path.endswith(".json") else "text/plain"] = {"schema": {}}
    if one.streams:
        content[_EVENTS] = {"schema": _EVENT}
    described: dict[str, Any] = {
        "summary": one.summary,
        "responses": {
            "200": {"description": "Done.", "content": content},
            "default": {
                "description": "Refused, or failed.",
                "content": {_JSON: {"schema": refs[error]}},
            },
        },
    }
    if one.answer is answers.Ready:
        described["responses"]["503"] = {
            "description": "Not served now.",
            "content": {_JSON: {"schema": refs[one.answer]}},
        }
    if one.takes is not None:
        body = {"required": True, "content": {_JSON: {"schema": refs[one.takes]}}}
        described["requestBody"] = body
    if "{" in one.path:
        name = one.path.partition("{")[2].rstrip("}")
        described["parameters"] = [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": {"type": "string", "minLength": 1},
            }
        ]
    return described
