"""What a server asks of the thread that owns the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.decode.result import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One answer to generate.

    `prompt` are token ids. `checkpoints` are lengths of prefixes of the prompt at which another conversation, or the
    next turn of this one, may branch off; models whose state cannot be cut keep a snapshot there. `cache_key`
    separates callers that must not share a prefix. `deadline_s` are seconds from submission to the last token.
    """

    id: str
    prompt: list[int]
    options: GenerationOptions
    checkpoints: tuple[int, ...] = ()
    cache_key: str = ""
    deadline_s: float | None = None


class Prefill(NamedTuple):
    """The prompt is being read: `done` of `total` tokens that were not in a cache."""

    done: int
    total: int


Signal = Prefill | Event
