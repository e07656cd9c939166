"""Log-probabilities of emitted tokens, as the model gave them before any processing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from mtplx.runtime.sampling.filters import log_softmax

MAX_TOP_LOGPROBS = 20


class TokenLogprob(NamedTuple):
    """One token and the natural logarithm of its probability."""

    token_id: int
    logprob: float


class TokenLogprobs(NamedTuple):
    """An emitted token, and the likeliest tokens of its row, likeliest first."""

    token_id: int
    logprob: float
    top: tuple[TokenLogprob, ...]


def token_logprobs(logits: mx.array, tokens: Sequence[int], top: int) -> list[TokenLogprobs]:
    """What the model gave each of `tokens`  # logits [R, V], R >= len(tokens).

    Row i predicted `tokens[i]`. The law is the softmax of the logits at temperature 1, before penalties, bias, masks
    and filters, so that it does not depend on how a token was chosen. Waits for the device once.
    """
    count = len(tokens)
    scores = log_softmax(logits[:count].astype(mx.float32))
    chosen = mx.take_along_axis(scores, mx.array(list(tokens), dtype=mx.int32)[:, None], axis=-1)
    if top == 0:
        values: Any = chosen[:, 0].tolist()
        return [TokenLogprobs(t, v, ()) for t, v in zip(tokens, values, strict=True)]
    # A stable sort of the negated scores puts equal ones in the order of their ids.
    likeliest = mx.argsort(-scores, axis=-1)[:, :top]
    mx.eval(chosen, likeliest, best := mx.take_along_axis(scores, likeliest, axis=-1))
    told: Any = (chosen[:, 0].tolist(), likeliest.tolist(), best.tolist())
    return [
        TokenLogprobs(
            token, value, tuple(TokenLogprob(*pair) for pair in zip(ids, row, strict=True))
        )
        for token, value, ids, row in zip(tokens, *told, strict=True)
    ]
