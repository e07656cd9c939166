"""Server-sent events: order, errors, keep-alives, and clients that leave or do not read."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from mtplx.contracts.errors import MTPLXError, NumericError
from mtplx.runtime.scheduler.errors import RequestCancelledError
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.scheduler.ticket import CancelReason
from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.sse import DONE, KEEP_ALIVE, EventStream, event
from tests.support.scripted_owner import Burst, in_bursts
from tests.support.scripted_service import client_of, scripted_service
from tests.support.stream_routes import stream_routes

SCOPE: dict[str, Any] = {"type": "http", "path": "/v1/chat/completions", "state": {}}


class Peer:
    """The other end of one response; `leave` closes it, `gate` holds writes back while it is not set."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._has_left = asyncio.Event()

    def leave(self) -> None:
        self._has_left.set()

    async def receive(self) -> Message:
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.gate.wait()
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def is_complete(self) -> bool:
        return bool(self.messages) and not self.messages[-1].get("more_body", True)


async def play(peer: Peer, events: AsyncGenerator[bytes], **options: Any) -> None:
    await EventStream(events, **options)(SCOPE, peer.receive, peer.send)


async def giving(items: Iterable[bytes | float | Exception]) -> AsyncGenerator[bytes]:
    for item in items:
        if isinstance(item, Exception):
            raise item
        if isinstance(item, float):
            await asyncio.sleep(item)
        else:
            yield item


def test_events_go_out_in_order_and_the_stream_ends() -> None:
    async def main() -> None:
        peer = Peer()
        await play(peer, giving([event({"a": 1}), event({"b": "é\u2028"}, "named"), DONE]))
        assert peer.messages[0]["status"] == 200
        headers = dict(peer.messages[0]["headers"])
        assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
        assert headers[b"cache-control"] == b"no-store"
        assert peer.body == (
            b'data: {"a":1}\n\nevent: named\ndata: {"b":"\\u00e9\\u2028"}\n\ndata: [DONE]\n\n'
        )
        assert peer.is_complete

    asyncio.run(main())


def test_an_error_before_the_first_event_is_raised_for_a_status_of_its_own() -> None:
    async def main() -> None:
        peer = Peer()
        with pytest.raises(NumericError):
            await play(peer, giving([NumericError("nan")]))
        assert peer.messages == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NumericError("nan in the logits"), "numeric"),
        (RequestCancelledError("cut off", reason=CancelReason.SHUTDOWN), "cancelled"),
        (ValueError("the secret is 1234"), "internal"),
    ],
)
def test_an_error_after_it_is_the_last_event(
    failure: Exception, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> Peer:
        peer = Peer()
        await play(peer, giving([event({"a": 1}), failure]))
        return peer

    peer = asyncio.run(main())
    first, last, rest = peer.body.decode().split("\n\n")
    assert (first, rest) == ('data: {"a":1}', "")
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == code
    assert peer.is_complete
    assert "1234" not in last
    assert ("1234" in caplog.text) is isinstance(failure, ValueError)


def test_an_api_may_make_the_last_event_itself() -> None:
    async def main() -> bytes:
        peer = Peer()
        on_error: Callable[[MTPLXError], bytes] = lambda error: f"{error.code}!".encode()  # noqa: E731
        await play(peer, giving([b"x", NumericError("nan")]), on_error=on_error)
        return peer.body

    assert asyncio.run(main()) == b"xnumeric!"


def test_the_stream_is_kept_alive_while_nothing_comes() -> None:
    async def main() -> Peer:
        peer = Peer()
        await play(peer, giving([0.1, b"one", 0.1, b"two"]), keep_alive_s=0.03)
        return peer

    peer = asyncio.run(main())
    before, between = peer.body.removesuffix(b"two").split(b"one")
    assert before.count(KEEP_ALIVE) >= 2
    assert between.count(KEEP_ALIVE) >= 2
    assert peer.body.replace(KEEP_ALIVE, b"") == b"onetwo"
    assert peer.messages[0]["type"] == "http.response.start"


def test_an_error_behind_a_keep_alive_cannot_have_a_status_any_more() -> None:
    async def main() -> Peer:
        peer = Peer()
        await play(peer, giving([0.1, NumericError("nan")]), keep_alive_s=0.02)
        return peer

    peer = asyncio.run(main())
    assert peer.messages[0]["status"] == 200
    assert b'"code":"numeric"' in peer.body


@pytest.mark.parametrize("is_blocked", [False, True])
def test_the_events_are_closed_when_the_client_leaves(is_blocked: bool) -> None:
    async def main() -> None:
        closed = asyncio.Event()

        async def endless() -> AsyncGenerator[bytes]:
            try:
                while True:
                    yield b"x"
                    await asyncio.sleep(0.001)
            finally:
                closed.set()

        peer = Peer()
        playing = asyncio.create_task(play(peer, endless()))
        await asyncio.sleep(0.02)
        if is_blocked:
            peer.gate.clear()
            await asyncio.sleep(0.01)
        peer.leave()
        await asyncio.wait_for(playing, 1)
        assert closed.is_set()

    asyncio.run(main())


def test_a_slow_reader_holds_the_events_back() -> None:
    async def main() -> int:
        made = 0

        async def counted() -> AsyncGenerator[bytes]:
            nonlocal made
            for _ in range(1000):
                made += 1
                yield b"x"

        peer = Peer()
        peer.gate.clear()
        playing = asyncio.create_task(play(peer, counted()))
        await asyncio.sleep(0.02)
        held = made
        peer.gate.set()
        await playing
        assert len(peer.body) == 1000
        return held

    assert asyncio.run(main()) == 1


def test_a_stream_that_is_all_there_lets_others_run() -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def ready(name: str) -> AsyncGenerator[bytes]:
            for _ in range(100):
                order.append(name)
                yield b"x"

        await asyncio.gather(play(Peer(), ready("a")), play(Peer(), ready("b")))
        return order

    order = asyncio.run(main())
    assert order.index("b") < 50
    assert "a" in order[order.index("b") :]


def streamed(script: list[Burst]) -> str:
    with scripted_service(lambda _job: script) as service:
        answer = client_of(build_app(service, stream_routes())).post("/stream", json={})
    lines = answer.text.removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
    return "".join(json.loads(line.removeprefix("data: "))["text"] for line in lines)


@settings(max_examples=15)
@given(text=st.text(max_size=30), width=st.integers(1, 5))
def test_the_pieces_joined_are_the_text_for_every_width_of_bursts(text: str, width: int) -> None:
    assert streamed([*in_bursts(text, width)]) == text


def test_leaving_ends_the_job() -> None:
    seen = threading.Event()

    def script(_job: Job) -> Iterable[Burst]:
        while True:
            yield "x"
            yield 0.001
            seen.set()

    async def main() -> None:
        with scripted_service(script, max_tokens=10**6) as service:
            app = build_app(service, stream_routes())
            peer = Peer()
            sent = False

            async def receive() -> Message:
                nonlocal sent
                if not sent:
                    sent = True
                    return {"type": "http.request", "body": b"{}", "more_body": False}
                return await peer.receive()

            headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
            scope: dict[str, Any] = {
                "type": "http",
                "method": "POST",
                "path": "/stream",
                "headers": headers,
                "query_string": b"",
                "client": ("127.0.0.1", 1),
                "server": ("localhost", 80),
                "scheme": "http",
                "root_path": "",
            }
            asking = asyncio.create_task(app(scope, receive, peer.send))
            await asyncio.to_thread(seen.wait, 2)
            assert service.owner.health().active == 1
            peer.leave()
            await asyncio.wait_for(asking, 2)
            while service.owner.health().active:
                await asyncio.sleep(0.005)
            assert service.owner.totals.cancelled == {"client": 1}

    asyncio.run(main())
