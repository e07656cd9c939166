"""Teacher-forced agreement: how often the head's best token is the trunk's, with true tokens fed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mtplx.contracts.errors import HeadMissingError
from mtplx.runtime.heads.head import Head
from mtplx.runtime.model import Model
from mtplx.runtime.trunks.trunk import Hidden, Trunk

Hits = NDArray[np.bool_]
Likelihoods = NDArray[np.float32]
Tokens = NDArray[np.int64]

# Logits held at once: a vocabulary of 250 000 makes one text of 1000 rows a gigabyte.
_MOST_LOGITS = 1 << 24


class Window(NamedTuple):
    """What the trunk said of one stretch of text, from which any head can be scored.

    `tokens` [1, T], `hidden` [1, T, H] twice, `best` [T]: the trunk's argmax after each token.
    """

    tokens: mx.array
    hidden: Hidden
    best: Tokens


def measure_agreement(
    model: Model, texts: Iterable[Sequence[int]], *, depths: int = 3
) -> tuple[float, ...]:
    """Share of rows where the head's argmax at depth 1, 2, ... equals the trunk's for the same position.

    `texts` are token ids. Unconditional by depth: row i of depth d predicts token i + d + 1 from the trunk's hidden i
    and the true tokens up to i + d, whatever the depths before it said.

    Raises:
        HeadMissingError: the model has no head loaded.
    """
    if model.head is None:
        raise HeadMissingError(
            f"{model.path} has no MTP head to measure", hint="load it with its head"
        )
    agreed, rows = [0] * depths, [0] * depths
    for text in texts:
        window = read_window(model.trunk, text)
        for depth, hits in enumerate(score_window(model.head, window, model.trunk, depths)):
            agreed[depth] += int(hits.sum())
            rows[depth] += len(hits)
    return tuple(a / max(n, 1) for a, n in zip(agreed, rows, strict=True))


def read_window(trunk: Trunk, tokens: Sequence[int]) -> Window:
    """One forward of the trunk over `tokens`, without a past."""
    ids = mx.array([list(tokens)])
    hidden = trunk.forward(ids, trunk.make_caches())
    mx.eval(hidden)
    return Window(ids, hidden, _best(trunk.logits, hidden.after_norm, trunk.vocab_size))


def score_window(head: Head, window: Window, trunk: Trunk, depths: int) -> list[Hits]:
    """Whether each row agrees with the trunk, for each depth: `T - d` rows at depth d."""
    fed = head.feed(window.hidden)
    found: list[Hits] = []
    for depth in range(1, depths + 1):
        step = head.step(fed[:, :-1], window.tokens[:, depth:], head.make_caches())
        best = _best(head.logits, step.output, trunk.vocab_size)
        found.append(best == window.best[depth:])
        fed = step.recycled
    return found


def likelihoods(head: Head, window: Window, trunk: Trunk, depths: int) -> list[Likelihoods]:
    """Log-probability of the token that really comes, by the head, for each depth: `T - d - 1` rows at depth d.

    This is what heads are trained on, so it tells wirings apart that hardly ever change the best token.
    """
    fed = head.feed(window.hidden)
    found: list[Likelihoods] = []
    for depth in range(1, depths + 1):
        step = head.step(fed[:, :-1], window.tokens[:, depth:], head.make_caches())
        true = window.tokens[0, depth + 1 :]
        found.append(_log_chances(head.logits, step.output[:, :-1], true, trunk.vocab_size))
        fed = step.recycled
    return found


def _log_chances(
    logits: Callable[[mx.array], mx.array], hidden: mx.array, true: mx.array, vocab_size: int
) -> Likelihoods:
    """Log-probability [T] of `true` [T] under the logits of `hidden` [1, T, H], some rows at a time."""
    size = max(1, _MOST_LOGITS // vocab_size)
    parts = []
    for start in range(0, hidden.shape[1], size):
        rows = logits(hidden[:, start : start + size])[0].astype(mx.float32)
        taken = mx.take_along_axis(rows, true[start : start + size, None], axis=1)[:, 0]
        parts.append(np.array(taken - mx.logsumexp(rows, axis=-1), dtype=np.float32))
    return np.concatenate(parts)


def _best(logits: Callable[[mx.array], mx.array], hidden: mx.array, vocab_size: int) -> Tokens:
    """Argmax [T] of the logits of `hidden` [1, T, H], a bounded number of rows at a time."""
    size = max(1, _MOST_LOGITS // vocab_size)
    parts = [
        np.array(mx.argmax(logits(hidden[:, start : start + size])[0], axis=-1), dtype=np.int64)
        for start in range(0, hidden.shape[1], size)
    ]
    return np.concatenate(parts)
