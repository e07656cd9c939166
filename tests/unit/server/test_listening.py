"""The server on real sockets: peers that dawdle, leave or send rubbish, and a stop that ends well."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mtplx.contracts.errors import CorruptModelError, ServerError, UsageError
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.listening import Listener, bind
from mtplx.runtime.server.sse import EventStream
from tests.support.scripted_owner import Burst, ScriptedBackend, scripted_owner
from tests.support.scripted_service import live_server, scripted_service
from tests.support.stream_routes import stream_routes

QUICK = ServerConfig(
    header_timeout_s=0.2,
    receive_timeout_s=0.2,
    write_timeout_s=0.2,
    max_header_bytes=4096,
    max_connections=40,
)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.005)


def slow(_job: Job) -> Iterable[Burst]:
    while True:
        yield "x"
        yield 0.002


@contextmanager
def connection(url: str) -> Iterator[socket.socket]:
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as peer:
        peer.settimeout(5)
        peer.connect((host, int(port)))
        yield peer


def read_all(peer: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := peer.recv(65536):
            found += chunk
    return found


def post(path: str, content: bytes, *, length: int | None = None) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return (
        f"{head}content-length: {len(content) if length is None else length}\r\n\r\n".encode()
        + content
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with (
        scripted_service(config=QUICK) as service,
        live_server(build_app(service, stream_routes()), QUICK) as found,
    ):
        yield found


@pytest.mark.parametrize("start", [b"", b"GET /health/live HTTP/1.1\r\nhost: loc"])
def test_a_head_that_does_not_end_in_time_is_given_up(url: str, start: bytes) -> None:
    with connection(url) as peer:
        peer.sendall(start)
        began = time.monotonic()
        answer = read_all(peer)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert 0.1 < time.monotonic() - began < 2


def test_one_byte_now_and_then_does_not_stop_the_clock(url: str) -> None:
    with connection(url) as peer:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 3:
                peer.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - began < 2


def test_a_body_that_does_not_end_in_time_is_refused(url: str) -> None:
    with connection(url) as peer:
        peer.sendall(post("/echo", b'{"a":', length=100))
        answer = read_all(peer)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"receive_timeout"' in answer


def test_a_slow_request_on_a_connection_that_was_used_is_given_up_too(url: str) -> None:
    with connection(url) as peer:
        peer.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"200 OK" in peer.recv(65536)
        peer.sendall(b"GET /heal")
        assert b"HTTP/1.1 408 " in read_all(peer)


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\nconnection: close\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\n\r\n",
        b"GET  HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /%ff%00%0a HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: "
        + b"a" * 5000
        + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 500_000,
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        post("/echo", b"[" * 100).replace(b"host", b"connection: close\r\nhost"),
        post("/stream", b'{"prompt": "x", "prompt": 1}').replace(
            b"host", b"connection: close\r\nhost"
        ),
    ],
)
def test_what_is_no_request_is_no_fault_of_the_server(url: str, request_: bytes) -> None:
    with connection(url) as peer:
        peer.sendall(request_)
        answer = read_all(peer)
    assert answer.startswith(b"HTTP/1.1 4"), answer[:200]
    assert httpx2.get(f"{url}/health/ready").status_code == 200


def test_more_connections_than_allowed_are_turned_away(url: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connection(url))
        wait_until(lambda: httpx2.get(f"{url}/health/live").status_code == 503)
    wait_until(lambda: httpx2.get(f"{url}/health/live").status_code == 200)


@pytest.mark.parametrize("moment", ["prefill", "first byte", "later", "whole answer"])
def test_a_client_that_leaves_frees_the_model(moment: str) -> None:
    steps, pause = (200, 0.02) if moment == "prefill" else (1, 0.0)
    backend = ScriptedBackend(slow, prefill_steps=steps, prefill_step_s=pause)
    owner = scripted_owner(backend)
    with (
        scripted_service(owner=owner, max_tokens=10**6) as service,
        live_server(build_app(service, stream_routes())) as url,
    ):
        for _ in range(3):
            with connection(url) as peer:
                peer.sendall(post("/whole" if "whole" in moment else "/stream", b"{}"))
                wait_until(lambda: owner.health().active == 1)
                if moment in ("first byte", "later"):
                    peer.recv(10 if moment == "first byte" else 5000)
            began = time.monotonic()
            wait_until(lambda: owner.health().active == 0)
            assert time.monotonic() - began < 0.5
        assert owner.totals.cancelled == {"client": 3}
        assert len(backend.jobs) == 3


def test_a_client_that_does_not_read_is_cut_off() -> None:
    was_closed = threading.Event()

    async def talk() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"x" * 100_000
        finally:
            was_closed.set()

    async def flood(_request: Request) -> Response:
        return EventStream(talk())

    with scripted_service(config=QUICK) as service:
        app = build_app(service, [Route("/flood", flood)])
        with live_server(app, QUICK) as url, connection(url) as peer:
            peer.sendall(b"GET /flood HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert was_closed.wait(5)
            assert httpx2.get(f"{url}/health/ready").status_code == 200


def test_one_connection_serves_many_requests(url: str) -> None:
    with httpx2.Client(base_url=url) as client:
        for number in range(5):
            assert client.post("/echo", json={"n": number}).json() == {"n": number}
            assert client.post("/stream", json={}).text.endswith("data: [DONE]\n\n")


@contextmanager
def stoppable(
    script: Callable[[Job], Iterable[Burst]], grace_s: float
) -> Iterator[tuple[str, Callable[[], None]]]:
    """A server that drains its owner when stopped, as the command's does."""
    config = dataclasses.replace(ServerConfig(), port=0)
    with scripted_service(script, max_tokens=10**6) as service:
        listener = bind(config)
        is_ready = threading.Event()
        server = Listener(
            config,
            listener,
            load=lambda: build_app(service, stream_routes()),
            on_ready=is_ready.set,
            drain=lambda: service.owner.stop(grace_s),
            on_force=lambda: None,
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        assert is_ready.wait(5)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server.stop
        server.stop()
        thread.join(5)
        assert not thread.is_alive()


def test_answers_that_end_in_time_are_finished_before_the_stop() -> None:
    with (
        stoppable(lambda _job: ["one", 0.1, "two"], grace_s=5) as (url, stop),
        httpx2.stream("POST", f"{url}/stream", json={}) as answer,
    ):
        lines = answer.iter_lines()
        first = next(lines)
        stop()
        rest = "".join(lines)
    assert "one" in first
    assert "two" in rest
    assert rest.endswith("[DONE]")


def test_answers_that_do_not_are_cut_with_a_last_event() -> None:
    with (
        stoppable(slow, grace_s=0.05) as (url, stop),
        httpx2.stream("POST", f"{url}/stream", json={}) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        stop()
        last = [line for line in lines if line][-1]
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["code"] == "cancelled"
    assert "shutdown" in error["message"]


def test_what_loading_fails_with_ends_the_server() -> None:
    def fail() -> None:
        raise CorruptModelError("damaged")

    config = ServerConfig(port=0)
    server = Listener(
        config,
        bind(config),
        load=fail,  # type: ignore[arg-type]  # it never returns
        on_ready=lambda: None,
        drain=lambda: None,
        on_force=lambda: None,
    )
    with pytest.raises(CorruptModelError, match="damaged"):
        server.run()


def test_a_port_in_use_is_refused_with_another_one() -> None:
    first = bind(ServerConfig(port=0))
    port = first.getsockname()[1]
    try:
        with pytest.raises(ServerError, match=f"port {port} of 127.0.0.1 is in use") as caught:
            bind(ServerConfig(port=port))
    finally:
        first.close()
    assert f"mtplx serve --port {port + 1}" in caught.value.hint


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match=host):
        bind(ServerConfig(host=host, port=0))


def test_the_first_signal_stops_and_the_second_forces() -> None:
    forced = threading.Event()

    def drain() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert forced.wait(5)

    with scripted_service() as service:
        config = ServerConfig(port=0)
        before = signal.getsignal(signal.SIGINT)
        Listener(
            config,
            bind(config),
            load=lambda: build_app(service),
            on_ready=lambda: os.kill(os.getpid(), signal.SIGTERM),
            drain=drain,
            on_force=forced.set,
        ).run()
    assert forced.is_set()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_server_can_be_stopped_while_it_loads() -> None:
    may_load = threading.Event()
    was_asked = threading.Event()

    def load() -> Starlette:
        was_asked.set()
        may_load.wait(5)
        raise AssertionError("nobody waits for this")

    config = ServerConfig(port=0)
    never: Callable[[], None] = lambda: pytest.fail("it was never ready")  # noqa: E731
    server = Listener(config, bind(config), load=load, on_ready=never, drain=never, on_force=never)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert was_asked.wait(5)
    server.stop()
    thread.join(5)
    assert not thread.is_alive()
    may_load.set()
