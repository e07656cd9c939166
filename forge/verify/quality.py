"""What a quantised body costs: its distribution against the unquantised one's, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import UsageError
from mtplx.runtime.model import Model

_WINDOW = 256


class Quality(NamedTuple):
    """`kl` is the mean of KL(reference || candidate) in nats, `top1` the share of equal best tokens."""

    kl: float
    top1: float
    rows: int


def compare_quality(reference: Model, candidate: Model, texts: Iterable[Sequence[int]]) -> Quality:
    """Teacher-force both trunks on `texts` (token ids) and compare their distributions.

    Raises:
        UsageError: the two have different vocabularies, or there is no text.
    """
    sizes = reference.trunk.vocab_size, candidate.trunk.vocab_size
    if sizes[0] != sizes[1]:
        raise UsageError(
            f"{candidate.name} has a vocabulary of {sizes[1]}, {reference.name} one of {sizes[0]}.",
            hint="Compare an artifact with the checkpoint it was forged from.",
        )
    divergence, equal, rows = 0.0, 0, 0
    for text in texts:
        for start in range(0, len(text), _WINDOW):
            ids = mx.array([list(text[start : start + _WINDOW])])
            p, q = _log_probabilities(reference, ids), _log_probabilities(candidate, ids)
            # sum over the vocabulary of p log(p / q)
            found: Any = mx.sum(mx.exp(p) * (p - q)).item()
            same: Any = mx.sum(mx.argmax(p, axis=-1) == mx.argmax(q, axis=-1)).item()
            divergence += float(found)
            equal += int(same)
            rows += ids.shape[1]
    if rows == 0:
        raise UsageError("There is no text to compare on.", hint="Give a text of a few lines.")
    return Quality(divergence / rows, equal / rows, rows)


def _log_probabilities(model: Model, ids: mx.array) -> mx.array:
    """[T, V] in float32."""
    hidden = model.trunk.forward(ids, model.trunk.make_caches())
    logits = model.trunk.logits(hidden.after_norm)[0].astype(mx.float32)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
