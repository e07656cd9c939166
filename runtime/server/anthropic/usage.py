"""Tokens of a request, counted as this API does."""

from __future__ import annotations

from typing import Any

from mtplx.runtime.decode.result import Generation


def usage(prompt: int, cached: int, answer: int = 0, thinking: int = 0) -> dict[str, Any]:
    """The counts of tokens: `cached` of those of the prompt were read from a prefix that was kept."""
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": answer,
        "output_tokens_details": {"thinking_tokens": thinking},
    }


def usage_of(generation: Generation, thinking: int) -> dict[str, Any]:
    """The counts of a finished answer; `thinking` of its tokens were reasoning."""
    stats = generation.stats
    return usage(stats.prompt_tokens, stats.reused_tokens, stats.completion_tokens, thinking)
