"""The connections of the local hub: requests in, answers and things that go wrong out."""

from __future__ import annotations

import json
import re
import socket
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.hub_store import Request

if TYPE_CHECKING:
    from tests.support.hub_faults import Fault
    from tests.support.hub_server import HubServer

_CHUNK = 64 * 1024


class Answer(NamedTuple):
    """An answer before it is sent."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class RefusedError(Exception):
    """Ends the handling of a request with an error of the hub."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        headers = [("X-Error-Message", message), ("Content-Type", "application/json")]
        if code:
            headers.append(("X-Error-Code", code))
        self.answer = Answer(status, json.dumps({"error": message}).encode(), tuple(headers))


class Connection(BaseHTTPRequestHandler):
    """One connection: reads requests, does the faults, sends what `routed` answers."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    # Else every answer waits for the client's delayed acknowledgement of its headers.
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        """Answer HEAD."""
        self._handle()

    def do_GET(self) -> None:
        """Answer GET."""
        self._handle()

    def do_POST(self) -> None:
        """Answer POST."""
        self._handle()

    def do_PUT(self) -> None:
        """Answer PUT."""
        self._handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""

    @property
    def hub(self) -> HubServer:
        """The hub that is spoken to."""
        hub: HubServer = self.server.hub  # type: ignore[attr-defined]
        return hub

    def routed(self, path: str) -> Answer:
        """What the hub answers to the request for `path`; RefusedError when it refuses."""
        raise NotImplementedError

    def _handle(self) -> None:
        # A small buffer, so that bytes counted as sent are bytes that the client wanted.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHUNK)
        fault = self.hub.faults.find(self.command, unquote(self.path))
        if fault is not None and fault.hang_up is not None:
            self._hang_up(fault.hang_up)
            return
        self.payload = self._read_body()
        if fault is not None and fault.hang_s:
            self.hub.closing.wait(fault.hang_s)
        if fault is not None and fault.action is not None:
            fault.action()
        self._send(self._failure(fault) or self._answer(fault), fault)

    def _hang_up(self, num_bytes: int) -> None:
        self.payload = self.rfile.read(num_bytes)
        self.close_connection = True
        self._record(0, 0)

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _failure(self, fault: Fault | None) -> Answer | None:
        if fault is None or fault.status is None:
            return None
        answer = RefusedError(fault.status, fault.says, fault.error_code).answer
        if fault.retry_after is None:
            return answer
        return answer._replace(headers=(*answer.headers, ("Retry-After", str(fault.retry_after))))

    def _answer(self, fault: Fault | None) -> Answer:
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        path = unquote(url.path)
        try:
            with self.hub.lock:
                answer = self.routed(path)
        except RefusedError as refused:
            return refused.answer
        if answer.status != 200:
            return answer
        if fault is not None and fault.corrupt and answer.body:
            answer = answer._replace(body=bytes([answer.body[0] ^ 1]) + answer.body[1:])
        return answer if fault is not None and fault.ignore_range else self._ranged(answer)

    def _ranged(self, answer: Answer) -> Answer:
        """The part of the answer that a Range header asks for."""
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match:
            return answer
        size = len(answer.body)
        start, end = int(match[1]), min(int(match[2] or size - 1), size - 1)
        if start >= size:
            return Answer(416, headers=(("Content-Range", f"bytes */{size}"),))
        place = ("Content-Range", f"bytes {start}-{end}/{size}")
        return Answer(206, answer.body[start : end + 1], (*answer.headers, place))

    def _send(self, answer: Answer, fault: Fault | None) -> None:
        with self.hub.answering:
            self._send_now(answer, fault)

    def _send_now(self, answer: Answer, fault: Fault | None) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        body = b"" if self.command == "HEAD" else answer.body
        if fault is not None and fault.truncate is not None:
            body = body[: fault.truncate]
            self.close_connection = True
        sent = 0
        try:
            while sent < len(body):
                sent += self.connection.send(body[sent : sent + _CHUNK])
        except OSError:
            self.close_connection = True
        finally:
            self._record(answer.status, sent)

    def _record(self, status: int, sent: int) -> None:
        request = Request(
            self.command,
            unquote(self.path),
            self.headers.get("Range"),
            status,
            sent,
            "Authorization" in self.headers,
            len(self.payload),
        )
        with self.hub.lock:
            self.hub.requests.append(request)


def as_json(value: Any, status: int = 200) -> Answer:
    """`value` as the body of an answer."""
    return Answer(status, json.dumps(value).encode(), (("Content-Type", "application/json"),))
