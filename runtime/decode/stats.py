"""What a generation did and how long it took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from mtplx.runtime.decode.depth import MAX_DEPTH, Costs


@dataclass(slots=True)
class Stats:
    """Counts and times of one generation.

    `drafted_by_depth[d - 1]` counts drafts at depth d, `accepted_by_depth` those accepted. Times are in seconds;
    `decode_seconds` is the time after the first token. `rounds_by_depth[d]` counts rounds that drafted d tokens.
    `costs` are v and c where they were measured. `cache_miss` is why no prefix was reused, None where there is no bank
    or one was.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    completion_tokens: int = 0
    rounds: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    ttft_seconds: float | None = None
    drafted_by_depth: list[int] = field(default_factory=lambda: [0] * MAX_DEPTH)
    accepted_by_depth: list[int] = field(default_factory=lambda: [0] * MAX_DEPTH)
    rounds_by_depth: list[int] = field(default_factory=lambda: [0] * (MAX_DEPTH + 1))
    costs: Costs | None = None
    cache_miss: str | None = None

    def record_round(self, drafted: int, accepted: int, seconds: float) -> None:
        """Count one round."""
        self.rounds += 1
        self.decode_seconds += seconds
        self.rounds_by_depth[drafted] += 1
        for d in range(drafted):
            self.drafted_by_depth[d] += 1
            self.accepted_by_depth[d] += d < accepted

    @property
    def deepest(self) -> int:
        """The greatest depth that was drafted."""
        return max((d + 1 for d, n in enumerate(self.drafted_by_depth) if n), default=0)

    @property
    def acceptance_by_depth(self) -> list[float]:
        """Share of the drafts of each depth that were accepted, unconditional on those before."""
        pairs = zip(self.drafted_by_depth, self.accepted_by_depth, strict=True)
        return [accepted / drafted for drafted, accepted in list(pairs)[: self.deepest]]

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens per second after the first one."""
        tokens = self.completion_tokens - 1
        return tokens / self.decode_seconds if tokens > 0 and self.decode_seconds > 0 else None

    @property
    def prefill_tok_s(self) -> float | None:
        """Prompt tokens read per second."""
        read = self.prompt_tokens - self.reused_tokens
        return read / self.prefill_seconds if self.prefill_seconds > 0 else None

    @property
    def overhead(self) -> float | None:
        """o, what a round took beyond its forwards, in plain steps; None where v or the rounds are missing."""
        costs = self.costs
        if costs is None or not self.rounds or any(self.rounds_by_depth[len(costs.rows) :]):
            return None
        forwards = sum(
            count * (costs.rows[depth] + depth * costs.draft)
            for depth, count in enumerate(self.rounds_by_depth)
            if count
        )
        return (self.decode_seconds / costs.step_seconds - forwards) / self.rounds

    def to_json(self) -> dict[str, Any]:
        """The keys of the JSON output; what was not measured is null."""
        deepest = self.deepest
        costs = self.costs
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "ttft_s": self.ttft_seconds,
            "prefill_tok_s": self.prefill_tok_s,
            "decode_tok_s": self.decode_tok_s,
            "rounds": self.rounds,
            "drafted_by_depth": self.drafted_by_depth[:deepest],
            "accepted_by_depth": self.accepted_by_depth[:deepest],
            "acceptance_by_depth": self.acceptance_by_depth,
            "v": None if costs is None else list(costs.rows),
            "c": None if costs is None else costs.draft,
            "o": self.overhead,
        }


class Clock:
    """Seconds since it was made or last read."""

    def __init__(self) -> None:
        self.start = self._last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        return seconds

    def total(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.start
