"""Prefill: the prompt through the trunk in chunks, with the head's cache primed by true rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import NumericError, UsageError
from mtplx.runtime.decode.draft import NO_DRAFTS, Masks, read_but_last, read_rows
from mtplx.runtime.decode.engine import Engine
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.sampling.finite import describe_nonfinite, finite_rows
from mtplx.runtime.sampling.logprobs import TokenLogprobs, token_logprobs


class First(NamedTuple):
    """The first sampled token, and what was asked of its log-probabilities."""

    token: int
    logprobs: list[TokenLogprobs]


def prefill(
    engine: Engine,
    state: DecodeState,
    prompt: list[int],
    *,
    chunk: int,
    on_progress: Callable[[int, int], None] | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
    checkpoints: Collection[int] = (),
    on_checkpoint: Callable[[DecodeState], None] = lambda _state: None,
) -> First | None:
    """Read `prompt`, of which `state` already holds a prefix, and return the first sampled token.

    None when `is_interrupted`, which is asked before each chunk: the state then holds what was read. The token is
    not committed: the caller decides whether it is kept. `on_checkpoint` gets the state whenever it holds exactly as
    many tokens as one of `checkpoints` says, and may mark it. Row i of the head pairs hidden i with token i+1, so
    its last row waits for the token that is sampled here (DeepSeek-V3, arXiv 2412.19437, section 2.2).

    Raises:
        UsageError: nothing is left to read.
        NumericError: the logits after the prompt are not finite.
    """
    start = state.trunk_caches.committed
    if start >= len(prompt):
        raise UsageError("the prompt is empty", hint="give at least one token")
    state.tokens = list(prompt)
    total = len(prompt)
    for begin, end in _chunks(start, total, chunk, checkpoints):
        if is_interrupted():
            del state.tokens[begin:]
            return None
        hidden = engine.trunk.forward(mx.array([prompt[begin:end]]), state.trunk_caches)
        state.trunk_caches.commit(end - begin)
        is_checkpoint = end in checkpoints and end < total
        if engine.head is not None and state.head_caches is not None:
            state.unread.append(engine.head.feed(hidden))
            if end < total:
                read = read_but_last if is_checkpoint else read_rows
                read(engine.head, state)
                mx.eval(*state.head_caches.arrays())
        # Only what later chunks need: the last row is evaluated with the first token.
        mx.eval(*state.trunk_caches.arrays())
        if is_checkpoint:
            on_checkpoint(state)
        if on_progress is not None:
            on_progress(end - start, total - start)
    return _first_token(engine, hidden.after_norm[:, -1:], total)


def _chunks(
    start: int, total: int, chunk: int, checkpoints: Collection[int]
) -> list[tuple[int, int]]:
    """Pieces of at most `chunk` tokens that end at every checkpoint between."""
    ends = sorted({*(point for point in checkpoints if start < point < total), total})
    pieces = []
    for end in ends:
        while start < end:
            pieces.append((start, min(start + chunk, end)))
            start = pieces[-1][1]
    return pieces


def _first_token(engine: Engine, last: mx.array, position: int) -> First:
    logits = engine.trunk.logits(last)[0]
    finite = finite_rows(logits)
    masks = Masks(engine.constraint, engine.pipeline.vocab_size)
    scores = engine.pipeline.scores(logits, engine.history, NO_DRAFTS, 0, masks.last)
    verdict = engine.acceptance.accept(scores, [], NO_DRAFTS, position)
    told: Any = mx.stack([finite.all().astype(mx.int32), verdict.next_token]).tolist()
    is_finite, token = told
    if not is_finite:
        raise NumericError(
            f"the model produced unusable logits at position {position} (row 0): "
            f"{describe_nonfinite(logits[0])}"
        )
    top = engine.logprobs
    return First(int(token), [] if top is None else token_logprobs(logits, [int(token)], top))
