"""Errors as HTTP answers: one table of statuses, and the error objects of both APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from mtplx.contracts.errors import InternalError, InvalidRequestError, MTPLXError, UsageError
from mtplx.runtime.scheduler.errors import RequestCancelledError
from mtplx.runtime.scheduler.ticket import CancelReason
from mtplx.runtime.server.refusals import MethodError, NoSuchResourceError

STATUS: Final[Mapping[str, int]] = {
    "usage": 400,
    "invalid_request": 400,
    "prompt_too_long": 400,
    "head_missing": 400,
    "chat_template_missing": 400,
    "tokenizer_missing": 400,
    "unsupported_model": 400,
    "invalid_api_key": 401,
    "forbidden": 403,
    "not_found": 404,
    "model_not_found": 404,
    "method_not_allowed": 405,
    "receive_timeout": 408,
    "cancelled": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "queue_full": 429,
    "too_many_failures": 429,
    "headers_too_large": 431,
    "not_ready": 503,
    "resource": 507,
}
"""The status of each error that a request can end with, by its code; all others are ours and 500."""

_CANCELLED: Final[Mapping[CancelReason, int]] = {
    CancelReason.DEADLINE: 408,
    CancelReason.SHUTDOWN: 503,
}

_OPENAI_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}

_ANTHROPIC_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}

ANTHROPIC_PREFIX: Final = "/v1/messages"


def is_anthropic(path: str) -> bool:
    """Whether `path` belongs to the Anthropic API."""
    return path == ANTHROPIC_PREFIX or path.startswith(ANTHROPIC_PREFIX + "/")


def status_of(error: MTPLXError) -> int:
    """The HTTP status that `error` answers with."""
    if isinstance(error, RequestCancelledError):
        return _CANCELLED.get(error.reason, STATUS[error.code])
    return STATUS.get(error.code, 500)


def error_object(error: MTPLXError, path: str, request_id: str = "") -> dict[str, Any]:
    """`error` in the shape of the API that `path` belongs to."""
    status = status_of(error)
    if is_anthropic(path):
        kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else _WRONG)
        fault = {"type": kind, "message": str(error)}
        return {"type": "error", "error": fault, "request_id": request_id or None}
    kind = _OPENAI_TYPES.get(status, "server_error" if status >= 500 else _WRONG)
    key = error.key if isinstance(error, InvalidRequestError) else None
    return {"error": {"message": str(error), "type": kind, "param": key, "code": error.code}}


def error_response(error: MTPLXError, path: str, request_id: str = "") -> Response:
    """The whole answer to a request that failed before anything was sent."""
    status = status_of(error)
    headers: dict[str, str] = {}
    retry_after = getattr(error, "retry_after_s", None)
    if retry_after is not None:
        headers["retry-after"] = str(retry_after)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.code not in _PASSING:
        # The official clients repeat by themselves what ends with 408, 409, 429 or 5xx.
        headers["x-should-retry"] = "false"
    if status in _UNREAD:
        headers["connection"] = "close"
    return JSONResponse(error_object(error, path, request_id), status, headers)


def from_starlette(error: HTTPException, path: str) -> MTPLXError:
    """What the router refuses, in our words."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return MethodError(f"{path[:200]} does not take this method.", hint=f"It takes {allowed}.")
    if error.status_code == 404:
        return NoSuchResourceError(
            f"nothing is at {path[:200]}.", hint="GET / lists what there is."
        )
    if error.status_code < 500:
        return UsageError(error.detail)
    return InternalError(error.detail)


_WRONG: Final = "invalid_request_error"

# What may be gone a moment later.
_PASSING: Final = frozenset({"queue_full", "not_ready", "receive_timeout"})

# After these the rest of the body would have to be read before the next request could be.
_UNREAD: Final = frozenset({408, 413, 431})
