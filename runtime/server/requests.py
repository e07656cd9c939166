"""One HTTP request from its first to its last byte: its id, its log line, its time, and what nobody else caught."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mtplx.contracts.errors import InternalError, MTPLXError
from mtplx.runtime.server.errors import error_response

if TYPE_CHECKING:
    from mtplx.runtime.server.metrics import Metrics

log = logging.getLogger("mtplx.server")
access_log = logging.getLogger("mtplx.access")

REQUEST_ID: Final = "request_id"
KEY_NAME: Final = "key_name"
"""Where the state of a request's scope holds its id, and the name of the key it came with (None without one)."""


_OTHER: Final = "other"


class RequestFrame:
    """The outermost middleware.

    Ids are made here and not taken from clients, who could otherwise cancel each other's requests. Every answer
    carries its own as `x-request-id`, and as `request-id`, which Anthropic's client looks for. The log line has the
    path without its query, and never a body. `paths` are the endpoints' paths, which metrics are kept for.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, paths: Mapping[Callable[..., Any], str]
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {}).update({REQUEST_ID: request_id, KEY_NAME: None})
        started = time.monotonic()
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = headers["request-id"] = request_id
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            await self._app(scope, receive, send_marked)
        except Exception as error:  # the outermost frame: nothing above could answer
            if not isinstance(error, MTPLXError):
                log.error("request %s failed", request_id, exc_info=error)
                error = InternalError("the server failed; its log has more.")
            if status == 0:
                await error_response(error, scope["path"], request_id)(scope, receive, send_marked)
        finally:
            seconds = time.monotonic() - started
            # Paths that are none of ours are one, so that clients cannot make new labels.
            endpoint = scope.get("endpoint")
            path = self._paths.get(endpoint, _OTHER) if endpoint else _OTHER
            self._metrics.request_ended(path, status, seconds)
            access_log.info(
                "%s %s %d %.3fs id=%s key=%s",
                scope["method"],
                _shown(scope["path"]),
                status,
                seconds,
                request_id,
                scope["state"][KEY_NAME] or "-",
            )


def _shown(path: str) -> str:
    """A path fit for one line of a log."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in path[:200])
