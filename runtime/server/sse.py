"""Answers as server-sent events: written as they come, kept alive, and cut short when nobody reads them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mtplx.contracts.errors import InternalError, MTPLXError
from mtplx.runtime.server.connection import wait_disconnected
from mtplx.runtime.server.errors import error_object, is_anthropic

log = logging.getLogger("mtplx.server")

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"

# A stream whose events are all there already would otherwise keep the event loop from everything else.
_TURN: Final = 16

# ASCII alone, because some clients take U+0085 and U+2028 for ends of lines.
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One event whose data is a JSON object; `name` is its `event` field."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {_encode(data)}\n\n".encode("ascii")


def error_event(error: MTPLXError, path: str, request_id: str = "") -> bytes:
    """The last event of a stream that failed, as the API of `path` has it."""
    return event(
        error_object(error, path, request_id), name="error" if is_anthropic(path) else None
    )


class EventStream(Response):
    """A response made of the events that a generator gives.

    Status and headers go out with the first event, so that what fails before it (a full queue, a prompt that is too
    long) is answered with a status of its own; where nothing comes for `keep_alive_s`, they go out with a comment.
    What fails later becomes a last event, made by `on_error`. The generator is closed when the client leaves; the
    transport's own buffer is what it may be ahead of the client.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes],
        *,
        keep_alive_s: float = 15.0,
        on_error: Callable[[MTPLXError], bytes] | None = None,
    ) -> None:
        # As Starlette's own streaming response does: there is no body to give to the base class.
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no"})
        self._events = events
        self._keep_alive_s = keep_alive_s
        self._on_error = on_error
        self._lock = asyncio.Lock()
        self._has_started = False
        self._has_ended = False
        self._last_sent = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write until the events end or the client has gone."""
        writing = asyncio.create_task(self._write(scope, send))
        others = (
            asyncio.create_task(wait_disconnected(receive)),
            asyncio.create_task(self._keep_alive(send)),
        )
        try:
            await asyncio.wait({writing, others[0]}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, *others):
                task.cancel()
            await asyncio.gather(writing, *others, return_exceptions=True)
        if not writing.cancelled():
            writing.result()

    async def _write(self, scope: Scope, send: Send) -> None:
        count = 0
        try:
            async with aclosing(self._events) as events:
                async for chunk in events:
                    await self._send(send, chunk)
                    count += 1
                    if count % _TURN == 0:
                        await asyncio.sleep(0)
        except Exception as error:  # nothing above could still tell the client
            if not self._has_started:
                raise
            await self._send(send, self._last_event(error, scope))
        async with self._lock:
            self._has_ended = True
            await self._start(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _last_event(self, error: Exception, scope: Scope) -> bytes:
        request_id = scope.get("state", {}).get("request_id", "")
        if not isinstance(error, MTPLXError):
            log.error("request %s failed in mid-stream", request_id, exc_info=error)
            error = InternalError("the server failed; its log has more.")
        if self._on_error is not None:
            return self._on_error(error)
        return error_event(error, scope["path"], request_id)

    async def _keep_alive(self, send: Send) -> None:
        """Comments while nothing else is sent, so that proxies and clients wait on."""
        self._last_sent = time.monotonic()
        while True:
            quiet = time.monotonic() - self._last_sent
            if quiet >= self._keep_alive_s:
                await self._send(send, KEEP_ALIVE)
            else:
                await asyncio.sleep(self._keep_alive_s - quiet)

    async def _send(self, send: Send, chunk: bytes) -> None:
        async with self._lock:
            if self._has_ended:
                return
            await self._start(send)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._last_sent = time.monotonic()

    async def _start(self, send: Send) -> None:
        """Send status and headers once; the lock is held."""
        if not self._has_started:
            self._has_started = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
