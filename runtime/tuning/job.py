"""What a measuring process is asked, and what it answers, as lines of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import IO, Any


@dataclass(frozen=True, slots=True)
class Job:
    """Decode `max_tokens` greedily after `prompt` (token ids); `depth` None is the adaptive policy."""

    prompt: list[int]
    max_tokens: int
    depth: int | None = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tokens and times of one job. `decode_tok_s` counts the tokens after the first."""

    tokens: list[int]
    ttft_s: float
    decode_tok_s: float
    drafted_by_depth: list[int]
    accepted_by_depth: list[int]


def write_line(stream: IO[str], value: Any) -> None:
    """One object as one line."""
    stream.write(json.dumps(value) + "\n")
    stream.flush()


def job_to_json(job: Job) -> dict[str, Any]:
    """`job` as plain data."""
    return asdict(job)
