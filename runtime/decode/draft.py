"""Drafting: the head proposes tokens one after another, feeding itself."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import InternalError
from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.decode.engine import Engine
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.heads.head import Head, HeadStep

# Rows the head reads in one call when many have piled up (a prompt, or a long stretch of plain decoding).
READ_CHUNK = 512

NO_DRAFTS = mx.zeros((0,), dtype=mx.int32)


class Drafts(NamedTuple):
    """`tokens` [k] and the law each was drawn from, `scores` k x [1, V]; all lazy."""

    tokens: mx.array
    scores: list[mx.array]


def draft(engine: Engine, state: DecodeState, depth: int) -> Drafts:
    """Propose `depth` tokens. The head's cache keeps the true rows and drops the speculative ones.

    The first draft comes from true rows only (hidden of the trunk, committed token); each further draft is fed the
    head's own recycled hidden and its last draft.
    """
    if depth == 0 or engine.head is None or state.head_caches is None:
        return Drafts(NO_DRAFTS, [])
    first = len(state.tokens)
    step = read_rows(engine.head, state)
    tokens: list[mx.array] = []
    scores: list[mx.array] = []
    for i in range(depth):
        if i > 0:
            step = engine.head.step(step.recycled, tokens[-1][None, None], state.head_caches)
        logits = engine.head.logits(step.output)[0]
        before = mx.stack(tokens) if tokens else NO_DRAFTS
        scores.append(engine.pipeline.scores(logits, engine.history, before, first=i))
        tokens.append(engine.acceptance.propose(scores[-1], first + i))
    state.head_caches.rollback()
    return Drafts(mx.stack(tokens), scores)


def read_rows(head: Head, state: DecodeState) -> HeadStep:
    """Give the head all unread rows; returns its last row, [1, 1, H] each."""
    caches = state.head_caches
    if caches is None or not state.unread:
        raise InternalError("a draft needs a hidden of the trunk that the head has not read")
    hidden = state.unread[0] if len(state.unread) == 1 else mx.concatenate(state.unread, axis=1)
    state.unread.clear()
    start = caches.committed
    tokens = state.tokens[start + 1 : start + 1 + hidden.shape[1]]
    step = _read(head, caches, hidden, tokens)
    return HeadStep(step.output[:, -1:], step.recycled[:, -1:])


def _read(head: Head, caches: CacheSet, hidden: mx.array, tokens: list[int]) -> HeadStep:
    """Rows in chunks, so that a long stretch of them does not need one large forward."""
    total = hidden.shape[1]
    if total != len(tokens):
        raise InternalError(f"{total} hiddens for {len(tokens)} tokens of the head")
    for start in range(0, total, READ_CHUNK):
        stop = min(start + READ_CHUNK, total)
        step = head.step(hidden[:, start:stop], mx.array([tokens[start:stop]]), caches)
        caches.commit(stop - start)
    return step
