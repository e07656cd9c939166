"""What the process with the server and the one with the clients are asked, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Api = Literal["chat", "completions", "responses", "messages"]


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Let `clients` ask `requests` times each, one request after the other, for answers of `max_tokens`."""

    url: str
    model: str
    api: Api
    clients: int
    requests: int
    max_tokens: int
    streams: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer. Times are seconds of the monotonic clock, which both processes share.

    `first` is when the first text arrived, `tokens` what the server counted.
    """

    id: str
    sent: float
    first: float
    last: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """All answers of a load, and the processor's seconds that the clients took."""

    answers: list[Answered]
    cpu_s: float


@dataclass(frozen=True, slots=True)
class ServerTask:
    """Tell what happened since the last time."""


@dataclass(frozen=True, slots=True)
class ServerTold:
    """When each prompt had been read, by the id of its request, and the processor's seconds so far."""

    read_at: dict[str, float]
    cpu_s: float
