"""Drafting: the head proposes tokens one after another, feeding itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import InternalError
from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.decode.engine import Engine
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.heads.head import Head, HeadStep
from mtplx.runtime.sampling.constraint import Constraint

# Rows the head reads in one call when many have piled up (a prompt, or a long stretch of plain decoding).
READ_CHUNK = 512

# Made of data and not by an operation, whose stream would belong to the thread that imports this.
NO_DRAFTS = mx.array([], dtype=mx.int32)


class Drafts(NamedTuple):
    """`tokens` [k] and the law each was drawn from, `scores` k x [1, V]; all lazy.

    With a constraint the tokens have been evaluated, and `masks` are those of the k + 1 rows to verify  # bool [1, V]
    """

    tokens: mx.array
    scores: list[mx.array]
    masks: Sequence[mx.array] = ()


def draft(engine: Engine, state: DecodeState, depth: int) -> Drafts:
    """Propose up to `depth` tokens. The head's cache keeps the true rows and drops the speculative ones.

    The first draft comes from true rows only (hidden of the trunk, committed token); each further draft is fed the
    head's own recycled hidden and its last draft. A constraint masks drafts as it does verified rows, and nothing is
    drafted behind the end of its grammar.
    """
    masks = Masks(engine.constraint, engine.pipeline.vocab_size)
    if depth == 0 or engine.head is None or state.head_caches is None:
        return Drafts(NO_DRAFTS, [], masks.rows)
    first = len(state.tokens)
    step = read_rows(engine.head, state)
    tokens: list[mx.array] = []
    scores: list[mx.array] = []
    while len(tokens) < depth and not masks.is_ended:
        i = len(tokens)
        if i > 0:
            step = engine.head.step(step.recycled, tokens[-1][None, None], state.head_caches)
        logits = engine.head.logits(step.output)[0]
        before = mx.stack(tokens) if tokens else NO_DRAFTS
        scores.append(engine.pipeline.scores(logits, engine.history, before, i, masks.last))
        tokens.append(engine.acceptance.propose(scores[-1], first + i))
        masks.follow(tokens[-1])
    state.head_caches.rollback()
    return Drafts(mx.stack(tokens), scores, masks.rows)


class Masks:
    """The masks of the row after the committed tokens, and after each draft followed so far."""

    def __init__(self, constraint: Constraint | None, vocab_size: int) -> None:
        self._constraint = constraint
        self._vocab_size = vocab_size
        self._drafts: list[int] = []
        self.is_ended = False
        self.rows: list[mx.array] = []
        self._add()

    @property
    def last(self) -> mx.array | None:
        """The mask of the next row  # bool [1, V], None without a constraint."""
        return self.rows[-1] if self.rows else None

    def follow(self, draft: mx.array) -> None:
        """Go on behind `draft`, which the host must know for that."""
        if self._constraint is not None:
            told: Any = draft.item()
            self._drafts.append(int(told))
            self._add()

    def _add(self) -> None:
        if self._constraint is None:
            return
        mask = self._constraint.allowed(self._drafts)
        self.is_ended = mask is None
        row = mx.ones((self._vocab_size,), dtype=mx.bool_) if mask is None else mx.array(mask)
        self.rows.append(row[None])


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


def read_but_last(head: Head, state: DecodeState) -> None:
    """Give the head all unread rows but the last, whose token may become another one."""
    hidden = mx.concatenate(state.unread, axis=1)
    state.unread = [hidden[:, :-1]] if hidden.shape[1] > 1 else []
    if state.unread:
        read_rows(head, state)
    state.unread = [mx.contiguous(hidden[:, -1:])]


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
