"""What of an answer the public schemas have no place for."""

from __future__ import annotations

from typing import Any

from mtplx.runtime.decode.result import Generation


def told(generation: Generation, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """The key `mtplx` of an answer; `notes` tell what of the request was put otherwise, or has no effect."""
    stats = generation.stats
    return {
        "seed": generation.seed,
        "generation_mode": generation.generation_mode,
        "drafted_tokens": sum(stats.drafted_by_depth),
        "accepted_tokens": sum(stats.accepted_by_depth),
        "notes": [*notes, *generation.warnings],
    }
