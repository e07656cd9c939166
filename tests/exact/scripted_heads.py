"""Heads whose drafts are given, and the state that a fresh prefill of the same tokens has."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.caches.kv import KVCache
from mtplx.runtime.decode.prefill import prefill
from mtplx.runtime.heads.head import Head, HeadStep
from mtplx.runtime.model import Model, parse_options
from mtplx.runtime.request import Request, prepare

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mtplx.runtime.caches.base import Snapshot
    from mtplx.runtime.decode.state import DecodeState
    from mtplx.runtime.trunks.trunk import Hidden

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


class ScriptedHead:
    """Drafts the tokens of a known text, but another one at the positions in `wrong`.

    Rows go through the real head where there is one, so that its cache is the real cache.
    """

    def __init__(
        self, real: Head | None, vocab: int, text: Sequence[int], wrong: Collection[int]
    ) -> None:
        self._real = real
        self._vocab = vocab
        self._text = text
        self._wrong = wrong
        self._position = 0

    def make_caches(self, **options: Any) -> CacheSet:
        return self._real.make_caches(**options) if self._real else CacheSet([KVCache()])

    def feed(self, hidden: Hidden) -> mx.array:
        return self._real.feed(hidden) if self._real else hidden.after_norm

    def step(self, hidden: mx.array, tokens: mx.array, caches: CacheSet) -> HeadStep:
        if self._real:
            step = self._real.step(hidden, tokens, caches)
        else:
            rows = mx.zeros((1, 1, hidden.shape[1], 1))
            caches[0].update_and_fetch(rows, rows)
            step = HeadStep(hidden, hidden)
        # Row r pairs hidden r with token r + 1 and predicts token r + 2.
        self._position = caches.offset + 1
        return step

    def logits(self, output: mx.array) -> mx.array:
        token = self._text[self._position] if self._position < len(self._text) else 0
        if self._position in self._wrong:
            token = (token + 1) % self._vocab
        one_hot = 20.0 * (mx.arange(self._vocab) == token)
        return mx.broadcast_to(one_hot, (*output.shape[:2], self._vocab))


def with_script(model: Model, text: Sequence[int], wrong: Collection[int] = ()) -> Model:
    """The model with a head that drafts `text` (prompt included)."""
    head: Any = ScriptedHead(model.head, model.trunk.vocab_size, text, wrong)
    return dataclasses.replace(model, head=head)


def start(model: Model, prompt: list[int], **options: Any) -> tuple[Request, DecodeState]:
    """A request and its state after prefill, with the first token committed."""
    parsed = parse_options({"temperature": 0.0, "ignore_end_tokens": True, **options})
    request, state = prepare(model, prompt, parsed), model.new_state(parsed)
    first = prefill(request.engine, state, prompt, chunk=parsed.prefill_chunk)
    assert first is not None
    request.answer.keep([first.token])
    state.tokens.append(first.token)
    if request.engine.history is not None:
        request.engine.history.append([first.token])
    return request, state


def assert_state_is_that_of_its_tokens(model: Model, state: DecodeState) -> None:
    """Every cache equals what a fresh prefill of the committed tokens leaves, up to rounding."""
    state.check()
    held = state.trunk_caches.committed
    tokens = mx.array([state.tokens[:held]])
    fresh = model.trunk.make_caches(kv_bits=model.kv_bits)
    hidden = model.trunk.forward(tokens, fresh)
    fresh.commit(held)
    _assert_same(state.trunk_caches.snapshot(), fresh.snapshot())
    if state.head_caches is None or model.head is None:
        return
    read = state.head_caches.committed
    fed = model.head.feed(hidden)
    unread = mx.concatenate(state.unread, axis=1)
    np.testing.assert_allclose(np.array(unread), np.array(fed[:, read:]), atol=5e-4)
    if read == 0:
        return
    fresh_head = model.head.make_caches(kv_bits=model.kv_bits)
    model.head.step(fed[:, :read], mx.array([state.tokens[1 : read + 1]]), fresh_head)
    fresh_head.commit(read)
    _assert_same(state.head_caches.snapshot(), fresh_head.snapshot())


def _assert_same(found: Snapshot, expected: Snapshot) -> None:
    assert (found.kind, found.rows) == (expected.kind, expected.rows)
    for mine, theirs in zip(_arrays(found), _arrays(expected), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(np.array(mine), np.array(theirs), atol=5e-4)


def _arrays(snapshot: Snapshot) -> Iterator[mx.array]:
    yield from (array for array in snapshot.arrays if array is not None)
    for part in snapshot.parts:
        yield from _arrays(part)
