"""What a generation gives back: events while it runs, and the whole at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from mtplx.runtime.decode.options import Depth
from mtplx.runtime.decode.stats import Stats
from mtplx.runtime.sampling.logprobs import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished generation. `text` has no end token in it, `token_ids` has.

    `stop_sequence` is the stop string that ended it, None where something else did.
    """

    text: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    finish_reason: str
    seed: int
    model: str
    tier: str
    generation_mode: str
    depth: Depth
    acceptance: str
    stats: Stats
    warnings: tuple[str, ...]
    stop_sequence: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that `mtplx run --json` prints."""
        return {
            "text": self.text,
            "prompt_token_ids": list(self.prompt_token_ids),
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "stop_sequence": self.stop_sequence,
            "seed": self.seed,
            "model": self.model,
            "tier": self.tier,
            "generation_mode": self.generation_mode,
            "depth": self.depth,
            "acceptance": self.acceptance,
            "stats": self.stats.to_json(),
            "warnings": list(self.warnings),
        }


class Event(NamedTuple):
    """`text` and `token_ids` new since the event before. The last event has a finish reason and the Generation.

    `logprobs` has one entry a token where they were asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    generation: Generation | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
