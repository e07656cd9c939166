"""Telling a numeric tie from a wrong token: where two runs part, how close were the two best choices?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mtplx.runtime.decode.draft import NO_DRAFTS
from mtplx.runtime.model import Model, parse_options
from mtplx.runtime.request import prepare
from mtplx.runtime.sampling.noise import Noise


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first token that differs, None when the sequences are equal."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return None if len(a) == len(b) else min(len(a), len(b))


def top_two_gap(model: Model, prompt: list[int], answer: Sequence[int], **options: Any) -> float:
    """Distance of the two best scores for the token after `answer`, noise included when sampling.

    Computed from a fresh prefill of all tokens, so it does not depend on the run that is judged.
    """
    parsed = parse_options(options)
    request = prepare(model, prompt, parsed)
    if request.engine.history is not None:
        request.engine.history.append(list(answer))
    tokens = [*prompt, *answer]
    hidden = model.trunk.forward(mx.array([tokens]), model.trunk.make_caches())
    logits = model.trunk.logits(hidden.after_norm[:, -1:])[0]
    scores = request.engine.pipeline.scores(logits, request.engine.history, NO_DRAFTS, first=0)
    if not request.engine.pipeline.params.is_greedy:
        noise = Noise(request.seed, model.trunk.vocab_size)
        scores = scores + noise.gumbel(len(tokens), 1)
    best: Any = mx.sort(scores[0])[-2:].tolist()
    return float(best[1] - best[0])


def explain(
    model: Model, prompt: list[int], expected: Sequence[int], found: Sequence[int], **options: Any
) -> float | None:
    """None when the two runs are equal, else the top-two gap where they part."""
    index = first_difference(expected, found)
    if index is None:
        return None
    return top_two_gap(model, prompt, list(expected[:index]), **options)
