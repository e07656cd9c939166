"""Prefill: the prompt through the trunk in chunks, with the head's cache primed by true rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from mtplx.contracts.errors import NumericError, UsageError
from mtplx.runtime.decode.draft import NO_DRAFTS, read_rows
from mtplx.runtime.decode.engine import Engine
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.sampling.finite import describe_nonfinite, finite_rows


def prefill(
    engine: Engine,
    state: DecodeState,
    prompt: list[int],
    *,
    chunk: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> int:
    """Read `prompt`, of which `state` already holds a prefix, and return the first sampled token.

    The token is not committed: the caller decides whether it is kept. Row i of the head pairs hidden i with token
    i+1, so its last row waits for the token that is sampled here (DeepSeek-V3, arXiv 2412.19437, section 2.2).

    Raises:
        UsageError: nothing is left to read.
        NumericError: the logits after the prompt are not finite.
    """
    start = state.trunk_caches.committed
    if start >= len(prompt):
        raise UsageError("the prompt is empty", hint="give at least one token")
    state.tokens = list(prompt)
    total = len(prompt)
    for begin in range(start, total, chunk):
        end = min(begin + chunk, total)
        hidden = engine.trunk.forward(mx.array([prompt[begin:end]]), state.trunk_caches)
        state.trunk_caches.commit(end - begin)
        if engine.head is not None and state.head_caches is not None:
            state.unread.append(engine.head.feed(hidden))
            if end < total:
                read_rows(engine.head, state)
                mx.eval(*state.head_caches.arrays())
        # Only what later chunks need: the last row is evaluated with the first token.
        mx.eval(*state.trunk_caches.arrays())
        if on_progress is not None:
            on_progress(end - start, total - start)
    return _first_token(engine, hidden.after_norm[:, -1:], total)


def _first_token(engine: Engine, last: mx.array, position: int) -> int:
    logits = engine.trunk.logits(last)[0]
    finite = finite_rows(logits)
    scores = engine.pipeline.scores(logits, engine.history, NO_DRAFTS, first=0)
    verdict = engine.acceptance.accept(scores, [], NO_DRAFTS, position)
    told: Any = mx.stack([finite.all().astype(mx.int32), verdict.next_token]).tolist()
    is_finite, token = told
    if not is_finite:
        raise NumericError(
            f"the model produced unusable logits at position {position} (row 0): "
            f"{describe_nonfinite(logits[0])}"
        )
    return int(token)
