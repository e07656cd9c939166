"""What a measuring process is asked, and what it answers, as lines of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
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
    """Tokens and times of one job. `decode_tok_s` counts the tokens after the first.

    `rounds` come after the first token. `peak_bytes` is the most that all arrays took, where that was watched.
    """

    tokens: list[int]
    ttft_s: float
    decode_tok_s: float
    drafted_by_depth: list[int]
    accepted_by_depth: list[int]
    rounds: int = 0
    peak_bytes: int | None = None


def write_line(stream: IO[str], value: Any) -> None:
    """One object as one line."""
    stream.write(json.dumps(value) + "\n")
    stream.flush()


def serve_jobs(about: dict[str, Any], run: Callable[[Job], Outcome]) -> None:
    """Write `about` to standard output, then the outcome of each job of standard input until that ends."""
    write_line(sys.stdout, about)
    for line in sys.stdin:
        write_line(sys.stdout, asdict(run(Job(**json.loads(line)))))
