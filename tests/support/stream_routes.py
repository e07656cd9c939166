"""The least endpoints that read a body and stream an answer, for tests of what is around the APIs."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.server.body import read_json
from mtplx.runtime.server.connection import while_connected
from mtplx.runtime.server.parts import Part, TextPart
from mtplx.runtime.server.requests import REQUEST_ID
from mtplx.runtime.server.service import Service
from mtplx.runtime.server.sse import DONE, EventStream, event


class PlainParser:
    """All text is the answer."""

    has_tool_calls = False
    is_finished = False

    def feed(self, text: str) -> list[Part]:
        """The text as it is."""
        return [TextPart(text)] if text else []

    def finish(self) -> list[Part]:
        """Nothing is held back."""
        return []


def stream_routes(*, keep_alive_s: float = 15.0) -> list[Route]:
    """`/echo` gives back the body, `/stream` streams the answer to `prompt`, `/whole` sends one at its end."""

    async def echo(request: Request) -> Response:
        return JSONResponse(await read_json(request))

    async def stream(request: Request) -> Response:
        body = await read_json(request)
        service: Service = request.app.state.service
        job = Job(
            id=request.scope["state"][REQUEST_ID],
            prompt=body.get("prompt", [1, 2, 3]),
            options=service.defaults,
            deadline_s=body.get("deadline_s", service.config.deadline_s),
        )
        return EventStream(_events(service, job), keep_alive_s=keep_alive_s)

    async def whole(request: Request) -> Response:
        await read_json(request)
        service: Service = request.app.state.service
        job = Job(id="whole", prompt=[1], options=service.defaults)
        return JSONResponse(await while_connected(request.receive, _text(service, job)))

    async def crash(_request: Request) -> Response:
        raise ValueError("the secret is 1234")

    return [
        Route("/echo", echo, methods=["POST"]),
        Route("/stream", stream, methods=["POST"]),
        Route("/whole", whole, methods=["POST"]),
        Route("/v1/messages/crash", crash, methods=["GET"], name="anthropic_crash"),
        Route("/crash", crash, methods=["GET"]),
    ]


async def _text(service: Service, job: Job) -> str:
    async with service.answer(job, PlainParser()) as deltas:
        parts = [part async for delta in deltas for part in delta.parts]
    return "".join(part.text for part in parts if isinstance(part, TextPart))


async def _events(service: Service, job: Job) -> AsyncGenerator[bytes]:
    async with service.answer(job, PlainParser()) as deltas:
        async for delta in deltas:
            text = "".join(part.text for part in delta.parts if isinstance(part, TextPart))
            if text or delta.finish_reason:
                yield event({"text": text, "finish": delta.finish_reason})
    yield DONE
