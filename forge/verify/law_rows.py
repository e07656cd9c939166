"""Rows of a real model that the acceptance laws are tested on: every draft block a round can meet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mtplx.contracts.errors import HeadMissingError
from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.decode.draft import NO_DRAFTS
from mtplx.runtime.heads.head import Head, HeadStep
from mtplx.runtime.model import Model
from mtplx.runtime.sampling.params import SamplingParams
from mtplx.runtime.sampling.pipeline import SamplingPipeline

LAW_PARAMS = SamplingParams(temperature=1.0, top_k=5)
"""Few tokens a row, so that every block of two drafts can be verified."""

# Overlap of target and draft at which a law has most to decide.
_BEST_OVERLAP = 0.5
# Rows before the context: enough for the model to have settled.
_LEAST_CONTEXT = 4

Law = dict[int, float]
"""Log-probability of each token that has any."""


class LawRows(NamedTuple):
    """Log-probabilities over the V tokens that occur; rows that no round meets are -inf.

    `target1` [V] follows the context, `target2` [V, V] one more token, `target3` [V, V, V] two more; `draft1` [V] and
    `draft2` [V, V] are the head's.
    """

    target1: NDArray[np.float32]
    target2: NDArray[np.float32]
    target3: NDArray[np.float32]
    draft1: NDArray[np.float32]
    draft2: NDArray[np.float32]


def informative_context(model: Model, ids: Sequence[int]) -> list[int]:
    """The beginning of `ids` after which target and draft overlap closest to one half.

    Where the two agree fully, or not at all, a wrong law can look right.
    """
    head = _head(model)
    pipeline = SamplingPipeline(LAW_PARAMS, model.trunk.vocab_size)
    tokens = mx.array([list(ids)])
    hidden = model.trunk.forward(tokens, model.trunk.make_caches())
    target = pipeline.scores(model.trunk.logits(hidden.after_norm)[0], None, NO_DRAFTS, 0)
    step = head.step(head.feed(hidden)[:, :-1], tokens[:, 1:], head.make_caches())
    draft = pipeline.scores(head.logits(step.output)[0], None, NO_DRAFTS, 0)
    # Row i of the head predicts token i + 2, as row i + 1 of the trunk does.
    overlap: Any = mx.minimum(mx.exp(target[1:]), mx.exp(draft)).sum(axis=-1).tolist()
    lengths = range(min(_LEAST_CONTEXT, len(ids)), len(ids) + 1)
    best = min(lengths, key=lambda length: abs(overlap[length - 2] - _BEST_OVERLAP))
    return list(ids[:best])


def law_rows(model: Model, context: Sequence[int]) -> LawRows:
    """Verify every pair of drafts after `context` (two tokens or more), each in the forward of a real round."""
    round_ = _Round(model, context)
    target1 = round_.target([])[0]
    draft1 = round_.draft([])
    target2: dict[int, Law] = {}
    target3: dict[tuple[int, int], Law] = {}
    draft2 = {token: round_.draft([token]) for token in draft1}
    for first in draft1:
        for second in draft2[first]:
            _, target2[first], target3[first, second] = round_.target([first, second])
    for token in target1.keys() - draft1.keys():
        target2[token] = round_.target([token])[1]
    return _as_arrays(target1, target2, target3, draft1, draft2)


class _Round:
    """A sequence whose next round can be tried with any drafts; the caches stay as they are."""

    def __init__(self, model: Model, context: Sequence[int]) -> None:
        self._trunk, self._head = model.trunk, _head(model)
        self._pipeline = SamplingPipeline(LAW_PARAMS, model.trunk.vocab_size)
        self._last = context[-1]
        self._caches = model.trunk.make_caches()
        self._head_caches: CacheSet = self._head.make_caches()
        hidden = self._trunk.forward(mx.array([list(context[:-1])]), self._caches)
        self._caches.commit(len(context) - 1)
        step = self._head.step(
            self._head.feed(hidden), mx.array([list(context[1:])]), self._head_caches
        )
        self._head_caches.commit(len(context) - 1)
        self._step = HeadStep(step.output[:, -1:], step.recycled[:, -1:])

    def target(self, drafts: Sequence[int]) -> list[Law]:
        """The target's law after 0 to all of `drafts`."""
        self._caches.arm()
        hidden = self._trunk.forward(mx.array([[self._last, *drafts]]), self._caches)
        laws = self._laws(self._trunk.logits(hidden.after_norm)[0])
        self._caches.rollback()
        return laws

    def draft(self, drafts: Sequence[int]) -> Law:
        """The head's law after `drafts`."""
        step = self._step
        for token in drafts:
            step = self._head.step(step.recycled, mx.array([[token]]), self._head_caches)
        law = self._laws(self._head.logits(step.output)[0])[0]
        self._head_caches.rollback()
        return law

    def _laws(self, logits: mx.array) -> list[Law]:
        rows = np.array(self._pipeline.scores(logits, None, NO_DRAFTS, 0))
        return [
            {int(token): float(row[token]) for token in np.flatnonzero(np.isfinite(row))}
            for row in rows
        ]


def _as_arrays(
    target1: Law,
    target2: dict[int, Law],
    target3: dict[tuple[int, int], Law],
    draft1: Law,
    draft2: dict[int, Law],
) -> LawRows:
    """The laws over the tokens that occur, renumbered."""
    laws = [target1, draft1, *target2.values(), *target3.values(), *draft2.values()]
    tokens = sorted({token for law in laws for token in law})
    place = {token: index for index, token in enumerate(tokens)}
    size = len(tokens)

    def fill(keys: Iterable[tuple[tuple[int, ...], Law]], depth: int) -> NDArray[np.float32]:
        rows = np.full((size,) * (depth + 1), -math.inf, dtype=np.float32)
        for before, law in keys:
            for token, score in law.items():
                rows[(*(place[t] for t in before), place[token])] = score
        return rows

    return LawRows(
        fill([((), target1)], 0),
        fill([((t,), law) for t, law in target2.items()], 1),
        fill(list(target3.items()), 2),
        fill([((), draft1)], 0),
        fill([((t,), law) for t, law in draft2.items()], 1),
    )


def _head(model: Model) -> Head:
    if model.head is None:
        raise HeadMissingError(
            f"{model.path} has no MTP head to verify.",
            hint="`mtplx inspect` says what it is.",
        )
    return model.head
