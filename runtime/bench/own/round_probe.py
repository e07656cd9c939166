"""Timing the parts of a round one by one: verifying rows, drafting, and the whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import HeadMissingError, InternalError
from mtplx.runtime.bench.tasks import ROUNDS_PER_DEPTH, CostsTask, RoundTimes
from mtplx.runtime.decode.engine import Engine
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.decode.round import run_round
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.model import Model
from mtplx.runtime.request import prepare


class Running(NamedTuple):
    """A prompt that was read, and what extends it."""

    engine: Engine
    state: DecodeState


class RoundProbe:
    """Two sequences behind one prompt, a plain one and one with the head, that are timed in turns.

    What is timed is what a round does: an armed forward over rows that follow the context, a chain of drafts fed with
    themselves, and `run_round`, of which one token is kept.

    Raises:
        HeadMissingError: drafts were asked for and there is no head.
    """

    def __init__(self, model: Model, task: CostsTask) -> None:
        if task.depth and model.head is None:
            raise HeadMissingError(f"{model.path} has no MTP head whose drafts could be timed")
        self._plain = _begin(model, task, depth=0)
        self._mtp = _begin(model, task, depth=1) if task.depth else None
        # Compiles every shape, and leaves one row for the head to read.
        self.measure(task.rows, task.depth)

    def measure(self, rows: int, depth: int) -> RoundTimes:
        """Time everything once, in turn."""
        return RoundTimes(
            verify=[self._verify(count) for count in range(1, rows + 1)],
            drafts=[self._drafts(count) for count in range(1, depth + 1)],
            rounds=[self._round(count) for count in range(depth + 1)],
        )

    def _verify(self, rows: int) -> float:
        """A forward over `rows` rows, whose tokens are the last of the context: experts see real text."""
        engine, state = self._plain
        last = state.tokens[-rows:]
        tokens = mx.array([(last * rows)[:rows]], dtype=mx.int32)
        caches = state.trunk_caches

        def verify() -> None:
            caches.arm()
            hidden = engine.trunk.forward(tokens, caches)
            mx.eval(mx.argmax(engine.trunk.logits(hidden.after_norm), axis=-1))

        seconds = _timed(verify)
        caches.rollback()
        return seconds

    def _drafts(self, depth: int) -> float:
        """A chain of drafts; the head's cache is as before afterwards."""
        engine, state = self._drafting()
        head, caches = engine.head, state.head_caches
        if head is None or caches is None:
            raise InternalError("a sequence with drafts has no head")
        hidden = state.unread[-1][:, -1:]
        token = mx.array([state.tokens[-1:]], dtype=mx.int32)
        mx.eval(hidden, *caches.arrays())

        def chain() -> None:
            fed, draft = hidden, token
            for _ in range(depth):
                step = head.step(fed, draft, caches)
                fed, draft = step.recycled, mx.argmax(head.logits(step.output), axis=-1)
            mx.eval(draft)

        seconds = _timed(chain)
        caches.rollback()
        return seconds

    def _round(self, depth: int) -> float:
        """The last of a few rounds: what a round leaves to be computed, the next one pays, as in decoding."""
        engine, state = self._drafting() if depth else self._plain
        return [
            _timed(lambda: run_round(engine, state, depth, lambda _tokens: 1))
            for _ in range(ROUNDS_PER_DEPTH)
        ][-1]

    def _drafting(self) -> Running:
        if self._mtp is None:
            raise InternalError("drafts are timed of a probe that was made without")
        return self._mtp


def _begin(model: Model, task: CostsTask, *, depth: int) -> Running:
    """The prompt read, and its first token taken."""
    options = GenerationOptions(
        max_tokens=1,
        depth=depth,
        prefill_chunk=task.chunk,
        temperature=0.0,
        repetition_penalty=1.0,
        ignore_end_tokens=True,
    )
    request, state = prepare(model, task.prompt, options), model.new_state(options)
    next(request.events(state))
    return Running(request.engine, state)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
