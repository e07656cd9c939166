"""Tokens of a request, counted as this API does."""

from __future__ import annotations

from typing import Any

from mtplx.runtime.server.answering import Delta


class Usage:
    """The counts of all choices of one request.

    A prompt is counted once, however many choices it has. `accepted_prediction_tokens` are drafts that became part of
    the answer, and `rejected_prediction_tokens` those that did not; unlike with predictions that a client sends, the
    latter are not among the `completion_tokens`.
    """

    def __init__(self) -> None:
        self._prompt = self._cached = self._answer = 0
        self._reasoning = self._drafted = self._accepted = 0

    def add(self, delta: Delta, *, is_new_prompt: bool) -> None:
        """Count the last delta of a choice; the first choice of a prompt counts the prompt, too."""
        if delta.generation is None:
            return
        stats = delta.generation.stats
        if is_new_prompt:
            self._prompt += stats.prompt_tokens
            self._cached += stats.reused_tokens
        self._answer += stats.completion_tokens
        self._reasoning += delta.reasoning_tokens
        self._drafted += sum(stats.drafted_by_depth)
        self._accepted += sum(stats.accepted_by_depth)

    def to_json(self) -> dict[str, Any]:
        """The `usage` of a completion."""
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": self._answer,
            "total_tokens": self._prompt + self._answer,
            "prompt_tokens_details": {"cached_tokens": self._cached},
            "completion_tokens_details": {
                "reasoning_tokens": self._reasoning,
                "accepted_prediction_tokens": self._accepted,
                "rejected_prediction_tokens": self._drafted - self._accepted,
            },
        }

    def to_response(self) -> dict[str, Any]:
        """The `usage` of a response."""
        return {
            "input_tokens": self._prompt,
            "input_tokens_details": {"cached_tokens": self._cached, "cache_write_tokens": 0},
            "output_tokens": self._answer,
            "output_tokens_details": {
                "reasoning_tokens": self._reasoning,
                "accepted_prediction_tokens": self._accepted,
                "rejected_prediction_tokens": self._drafted - self._accepted,
            },
            "total_tokens": self._prompt + self._answer,
        }
