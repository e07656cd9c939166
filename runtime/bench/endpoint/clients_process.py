"""A process with the clients: `python -m mtplx.runtime.bench.endpoint.clients_process -`.

Writes an empty line of JSON, then for every LoadTask of standard input a Load. The clients read bytes and look for
no more than they must, because the machine that they load is the server's too.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlsplit

from mtplx.contracts.errors import BackendError
from mtplx.runtime.bench.endpoint.tasks import Answered, Api, Load, LoadTask
from mtplx.runtime.bench.protocol import tell_error
from mtplx.runtime.tuning.job import write_line

_PATHS: Final[dict[Api, str]] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
# What the first event with text holds, and no event before it.
_TEXT: Final[dict[Api, re.Pattern[bytes]]] = {
    "chat": re.compile(rb'"content":"[^"]'),
    "completions": re.compile(rb'"text":"[^"]'),
    "responses": re.compile(rb'"response.output_text.delta","delta":"[^"]'),
    "messages": re.compile(rb'"text_delta","text":"[^"]'),
}
_USAGE: Final[dict[Api, str]] = {
    "chat": "completion_tokens",
    "completions": "completion_tokens",
    "responses": "output_tokens",
    "messages": "output_tokens",
}
_QUESTION: Final = "What does the yield keyword do?"


def main() -> None:
    """Answer until standard input ends."""
    write_line(sys.stdout, {})
    for line in sys.stdin:
        task = LoadTask(**json.loads(line))
        try:
            write_line(sys.stdout, asdict(asyncio.run(run(task))))
        except (BackendError, OSError) as error:
            told = error if isinstance(error, BackendError) else BackendError(str(error))
            write_line(sys.stdout, tell_error(told))


async def run(task: LoadTask) -> Load:
    """All requests of all clients. Raises BackendError for an answer that is none."""
    before = time.process_time()
    answers = await asyncio.gather(*(_client(task) for _ in range(task.clients)))
    return Load([one for found in answers for one in found], time.process_time() - before)


async def _client(task: LoadTask) -> list[Answered]:
    where = urlsplit(task.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=2**20)
    try:
        return [await _ask(task, reader, writer) for _ in range(task.requests)]
    finally:
        writer.close()


async def _ask(
    task: LoadTask, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Answered:
    body = json.dumps(_request(task)).encode()
    head = (
        f"POST {_PATHS[task.api]} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    sent = time.monotonic()
    writer.write(head.encode() + body)
    headers = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    answer, first, last = await _read(reader, headers, _TEXT[task.api])
    if " 200 " not in headers.split("\r\n", 1)[0]:
        raise BackendError(f"the server answered {headers.split(chr(13), 1)[0]}: {answer[:300]!r}")
    return Answered(
        id=headers.partition("x-request-id: ")[2].partition("\r\n")[0],
        sent=sent,
        first=first,
        last=last,
        tokens=_count(answer, _USAGE[task.api]),
    )


async def _read(
    reader: asyncio.StreamReader, headers: str, text: re.Pattern[bytes]
) -> tuple[bytes, float, float]:
    """The body, when `text` was first in it, and when it had ended."""
    length = headers.partition("content-length: ")[2].partition("\r\n")[0]
    if length:
        body = await reader.readexactly(int(length))
        now = time.monotonic()
        return body, now, now
    pieces: list[bytes] = []
    first = 0.0
    while True:
        piece = await reader.read(2**16)
        if not piece:
            raise BackendError("the server closed the connection in mid-answer")
        pieces.append(piece)
        if not first and text.search(piece):
            first = time.monotonic()
        # The end of a chunked body.
        if piece.endswith(b"0\r\n\r\n") and b"".join(pieces[-2:]).endswith(b"\r\n0\r\n\r\n"):
            return b"".join(pieces), first, time.monotonic()


def _request(task: LoadTask) -> dict[str, Any]:
    messages = [{"role": "user", "content": _QUESTION}]
    keys: dict[Api, dict[str, Any]] = {
        "chat": {"messages": messages, "max_tokens": task.max_tokens},
        "completions": {"prompt": _QUESTION, "max_tokens": task.max_tokens},
        "responses": {"input": _QUESTION, "max_output_tokens": task.max_tokens},
        "messages": {"messages": messages, "max_tokens": task.max_tokens},
    }
    body = {"model": task.model, **keys[task.api], "stream": task.streams}
    if task.streams and task.api in ("chat", "completions"):
        body["stream_options"] = {"include_usage": True}
    return body


def _count(answer: bytes, key: str) -> int:
    """The last count of this name."""
    _, found, rest = answer.rpartition(f'"{key}":'.encode())
    digits = rest[:12].split(b",")[0].split(b"}")[0].strip()
    if not found or not digits.isdigit():
        raise BackendError(f"an answer does not tell its {key}: {answer[-300:]!r}")
    return int(digits)


if __name__ == "__main__":
    main()
