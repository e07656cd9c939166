"""Many clients at once, of which some leave, read slowly or speak no HTTP: nothing leaks, all others are answered."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psutil
import pytest

from mtplx.runtime.server.app import build_app
from tests.support.real_service import wait_idle
from tests.support.scripted_owner import Burst, in_bursts, scripted_owner
from tests.support.scripted_service import NAME, live_server, scripted_model, scripted_service

if TYPE_CHECKING:
    from mtplx.runtime.scheduler.job import Job
    from mtplx.runtime.server.service import Service

CLIENTS = 16
TEXT = "Ünder the 漢 way. " * 12
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
# What a process may grow by for reasons of its own, such as buffers of the C library.
_SPARE = 24 * 2**20

MALFORMED = (
    b"",
    b"\x00\xff\xfe\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/9.9\r\nhost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: v\r\n" % n for n in range(500)) + b"\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 1000\r\n\r\n{",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n{}x",
    b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 5\r\n\r\n[[[[[",
    b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20,
)


@dataclass
class Seen:
    """What became of the requests."""

    answered: int = 0
    left: int = 0
    refused: Counter[int] = field(default_factory=Counter)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Service, str]]:
    model = scripted_model()
    model.tokenizer.chat_template = TEMPLATE

    def script(job: Job) -> Iterator[Burst]:
        yield from in_bursts(TEXT, 1 + len(job.prompt) % 4)

    owner = scripted_owner(script, queue_size=2 * CLIENTS)
    with (
        scripted_service(owner=owner, model=model) as service,
        live_server(build_app(service)) as url,
    ):
        yield service, url


def body(number: int, *, streams: bool) -> bytes:
    said: dict[str, Any] = {
        "model": NAME,
        "messages": [{"role": "user", "content": f"question {number}"}],
        "max_tokens": 1000,
        "stream": streams,
    }
    return json.dumps(said).encode()


async def ask(url: str, number: int, seen: Seen, chance: random.Random) -> None:
    """One request, which may be left or read slowly; whoever stays gets the whole answer."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    streams = chance.random() < 0.7
    sent = body(number, streams=streams)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(sent), sent)
    )
    try:
        if chance.random() < 0.1:
            await asyncio.sleep(chance.random() * 0.02)
            if chance.random() < 0.5:
                await reader.read(chance.randrange(1, 400))
            seen.left += 1
            return
        answer = b""
        is_slow = chance.random() < 0.05
        while piece := await reader.read(256 if is_slow else 65_536):
            answer += piece
            if is_slow:
                await asyncio.sleep(0.002)
        judge(answer, seen, streams=streams)
    finally:
        writer.close()


def judge(answer: bytes, seen: Seen, *, streams: bool) -> None:
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status != 200:
        seen.refused[status] += 1
        return
    if streams:
        lines = [line for line in rest.split(b"\n") if line.startswith(b"data: {")]
        deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines]
        text = "".join(delta.get("content") or "" for delta in deltas)
        assert b"data: [DONE]" in rest
    else:
        text = json.loads(rest)["choices"][0]["message"]["content"]
    assert text == TEXT
    seen.answered += 1


async def disturb(
    url: str, stop: asyncio.Event, chance: random.Random, statuses: list[int]
) -> None:
    """Send what is no request, or half of one, until told to stop."""
    where = urlsplit(url)
    while not stop.is_set():
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(chance.choice(MALFORMED))
        try:
            async with asyncio.timeout(0.05):
                answer = await reader.read(200)
                if answer.startswith(b"HTTP/1."):
                    statuses.append(int(answer[9:12]))
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()


async def storm(url: str, requests: int, seed: int) -> tuple[Seen, list[int]]:
    """All clients, each with `requests` requests one after the other, and somebody who disturbs."""
    seen = Seen()
    statuses: list[int] = []
    stop = asyncio.Event()
    disturbing = asyncio.create_task(disturb(url, stop, random.Random(seed), statuses))

    async def client(number: int) -> None:
        chance = random.Random(1000 * seed + number)
        for at in range(requests):
            await ask(url, number * requests + at, seen, chance)

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    stop.set()
    await disturbing
    return seen, statuses


def weather(served: tuple[Service, str], requests: int, seed: int) -> None:
    """One storm, after which everything is as it was."""
    service, url = served
    seen, statuses = asyncio.run(storm(url, requests, seed))
    wait_idle(service)
    assert seen.answered + seen.left + seen.refused.total() == CLIENTS * requests
    assert seen.left > 0
    # Nobody who waited was turned away: the queue holds one request of each client.
    assert not seen.refused
    assert statuses
    assert max(statuses) < 500
    totals = service.owner.stats()
    assert (totals["active_requests"], totals["queued_requests"]) == (0, 0)
    assert not totals["requests_failed"]


def test_clients_that_leave_and_clients_that_lie_harm_nobody(served: tuple[Service, str]) -> None:
    threads = threading.active_count()
    weather(served, requests=6, seed=1)
    # The pool of asyncio, which renders prompts, is as large as it gets.
    assert threading.active_count() <= threads + min(32, (os.cpu_count() or 1) + 4)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_memory_stays_flat_over_thousands_of_requests(served: tuple[Service, str]) -> None:
    """16 clients with 200 requests each; the first eighth warms up."""
    process = psutil.Process()
    weather(served, requests=25, seed=2)
    gc.collect()
    before = process.memory_info().rss
    threads = threading.active_count()
    descriptors = process.num_fds()
    weather(served, requests=175, seed=3)
    gc.collect()
    assert process.memory_info().rss - before < _SPARE
    assert threading.active_count() <= threads
    assert process.num_fds() <= descriptors + 2
