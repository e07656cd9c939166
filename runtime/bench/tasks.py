"""What a measuring process is asked and what it answers; values only, no mlx."""

from __future__ import annotations

from dataclasses import dataclass

from mtplx.runtime.tuning.job import Job


@dataclass(frozen=True, slots=True)
class DecodeTask(Job):
    """Decode after `prompt`; an `Outcome` is the answer. Temperature 0 is greedy, 0 and 1 turn top-k and top-p off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    acceptance: str = "coupled"
    prefill_chunk: int = 512


@dataclass(frozen=True, slots=True)
class PrefillTask:
    """Read `prompt` in chunks of `chunk` tokens up to the first token; `use_head` primes the head's cache."""

    prompt: list[int]
    chunk: int
    use_head: bool = False


@dataclass(frozen=True, slots=True)
class PrefillTimes:
    """Seconds to the first token, and what the head then still reads (None without it). `peak_bytes` of all arrays."""

    ttft_s: float
    head_rest_s: float | None
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryTask:
    """Read `prompt` and decode `max_tokens` at `depth`, watching memory."""

    prompt: list[int]
    max_tokens: int
    chunk: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes. Peaks count all arrays, weights included; caches are as held after the last token, spare room included.

    `*_per_token` is what one more token of context adds to the rows in use, None where it was not measured.
    """

    prefill_peak_bytes: int
    decode_peak_bytes: int
    trunk_cache_bytes: int
    head_cache_bytes: int | None = None
    trunk_bytes_per_token: float | None = None
    head_bytes_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class CostsTask:
    """Time forwards over 1 to `rows` rows, chains of 1 to `depth` drafts, and whole rounds, behind `prompt`."""

    prompt: list[int]
    rows: int
    depth: int
    chunk: int


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Seconds, each measured once in turn.

    `verify[m - 1]` is a forward over m rows, `drafts[d - 1]` a chain of d drafts, `rounds[d]` a whole round at depth d.
    """

    verify: list[float]
    drafts: list[float]
    rounds: list[float]


@dataclass(frozen=True, slots=True)
class RoomTask:
    """Ask what memory a context takes, and how much is free."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that one more token of context adds to all caches, and bytes that are free."""

    bytes_per_token: float
    free_bytes: int


# Rounds that each depth is given at a time when costs are taken; the last one is timed.
ROUNDS_PER_DEPTH = 2

Task = DecodeTask | PrefillTask | MemoryTask | CostsTask | RoomTask
