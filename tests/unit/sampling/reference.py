"""The sampling pipeline once more, in float64 numpy and without cleverness."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mtplx.runtime.sampling import SamplingParams

Row = NDArray[np.float64]


def process(
    logits: Sequence[float] | Row,
    params: SamplingParams,
    prompt: Sequence[int] = (),
    completion: Sequence[int] = (),
) -> Row:
    """The processed probabilities of one row (for greedy params: the processed logits)."""
    x = penalise(np.array(logits, dtype=np.float64), params, prompt, completion)
    return x if params.is_greedy else distribution(x, params)


def penalise(
    x: Row, params: SamplingParams, prompt: Sequence[int], completion: Sequence[int]
) -> Row:
    """Penalties and bias."""
    for token in {*prompt, *completion}:
        r = params.repetition_penalty
        x[token] = x[token] / r if x[token] > 0 else x[token] * r
    for token in set(completion):
        x[token] -= params.presence_penalty
        x[token] -= params.frequency_penalty * list(completion).count(token)
    for token, bias in params.logit_bias:
        x[token] += bias
    return x


def distribution(x: Row, params: SamplingParams) -> Row:
    """Temperature, then the filters one after the other, each on a renormalised law."""
    p = softmax(x / params.temperature)
    order = sorted(range(len(p)), key=lambda token: (-x[token], token))
    if 0 < params.top_k < len(p):
        p[order[params.top_k :]] = 0
        p /= p.sum()
    if params.top_p < 1.0:
        mass = 0.0
        for token in order:
            if mass >= params.top_p:
                p[token] = 0
            mass += p[token]
        p /= p.sum()
    p[p < params.min_p * p.max()] = 0
    law: NDArray[np.float64] = p / p.sum()
    return law


def softmax(x: Row) -> Row:
    """exp(x), normalised."""
    weights = np.exp(x - x.max())
    return np.asarray(weights / weights.sum())
