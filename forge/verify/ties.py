"""Telling a numeric tie from a wrong token, where two runs part.

A round verifies several rows in one forward, plain decoding computes them one by one. Both sum in another order, so
their scores differ by rounding, and where two tokens are as likely as rounding can tell, either may win. In 16-bit
types rounding can also send a token to another expert, which moves its scores by more than any step of the type: then
plain forwards over several rows must give the other token too, without a draft or a rollback. Anything beyond that is a
fault.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from mtplx.runtime.decode.draft import NO_DRAFTS
from mtplx.runtime.model import Model, parse_options
from mtplx.runtime.request import Request, prepare
from mtplx.runtime.sampling.noise import Noise
from mtplx.runtime.sampling.params import SamplingParams
from mtplx.runtime.sampling.pipeline import SamplingPipeline

FLOAT32_TOLERANCE = 1e-3
# Spacing of numbers around 1, by type.
_STEPS = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
# Steps by which sums of another order, rounded layer by layer, may move two logits apart.
_ROUNDINGS = 3


class Gap(NamedTuple):
    """How far the worse of two tokens is below the row's best score, and how far it may be for a tie.

    `value` is None when one of the tokens has no probability at all. `reading` is how the tokens before were read.
    """

    value: float | None
    tolerance: float
    reading: str

    @property
    def is_tie(self) -> bool:
        """Whether rounding explains that either token was chosen."""
        return self.value is not None and self.value <= self.tolerance


def first_difference(expected: Sequence[int], found: Sequence[int]) -> int | None:
    """Index of the first token that differs, None when the sequences are equal."""
    for index, (left, right) in enumerate(zip(expected, found, strict=False)):
        if left != right:
            return index
    return None if len(expected) == len(found) else min(len(expected), len(found))


def tolerance(dtypes: Iterable[str], largest: float, temperature: float) -> float:
    """The largest gap that rounding explains, for a row whose largest logit is `largest`.

    Logits computed in float32 differ by some 1e-5 between forwards of one row and of several; 1e-3 leaves room for
    deep models. A 16-bit logit is itself rounded to steps of 2^-7 (bfloat16) or 2^-10 (float16) of its size, and so is
    every hidden state on the way there, which makes three such steps. Scores are logits over the temperature, and
    their errors with them; greedy rows are logits.
    """
    step = max((_STEPS.get(dtype, 0.0) for dtype in dtypes), default=0.0)
    allowed = max(FLOAT32_TOLERANCE, _ROUNDINGS * step * abs(largest))
    return allowed / temperature if temperature > 0.0 else allowed


def judge(
    model: Model,
    prompt: Sequence[int],
    answer: Sequence[int],
    expected: int,
    found: int,
    options: Mapping[str, Any],
) -> Gap:
    """How close `found` was to `expected`, the token of plain decoding behind `prompt` and `answer`.

    The row is computed as plain decoding does it, token by token, and noise is added when sampling. Where that is no
    tie and the model computes in a 16-bit type, the same tokens are read by plain forwards over as many rows as a
    round has, and over the whole answer; the reading nearest to `found` counts.
    """
    request = prepare(model, list(prompt), parse_options({**options, "depth": 0}))
    plain = _gap(model, request, answer, (expected, found), 1)
    is_rounded = any(dtype in _STEPS for dtype in model.device["dtypes"])
    if plain.is_tie or not is_rounded:
        return plain
    widths = (options["depth"] + 1, max(len(answer), 2))
    others = [_gap(model, request, answer, (found,), width) for width in widths]
    return min((plain, *others), key=lambda gap: math.inf if gap.value is None else gap.value)


def _gap(
    model: Model, request: Request, answer: Sequence[int], tokens: Sequence[int], width: int
) -> Gap:
    """How far the worst of `tokens` is below the best, with the answer read in blocks of `width` tokens."""
    params = request.engine.pipeline.params
    logits = _row(model, request, answer, width)
    largest: Any = mx.max(mx.abs(logits.astype(mx.float32))).item()
    temperature = 0.0 if params.is_greedy else params.temperature
    allowed = tolerance(model.device["dtypes"], float(largest), temperature)
    noise = mx.zeros((1, model.trunk.vocab_size))
    if not params.is_greedy:
        position = len(request.prompt) + len(answer)
        noise = Noise(request.seed, model.trunk.vocab_size).gumbel(position, 1)
    gaps = []
    for variant in _nuclei(params, allowed):
        pipeline = SamplingPipeline(variant, model.trunk.vocab_size)
        row = (pipeline.scores(logits, None, NO_DRAFTS, first=0) + noise)[0]
        told: Any = mx.stack([mx.max(row), *(row[token] for token in tokens)]).tolist()
        gaps.append(told[0] - min(told[1:]))
    closest = min(gaps)
    reading = "token by token" if width == 1 else f"{width} rows at once"
    return Gap(closest if math.isfinite(closest) else None, allowed, reading)


def _row(model: Model, request: Request, answer: Sequence[int], width: int) -> mx.array:
    """Logits of the token after prompt and answer, read by plain forwards  # [1, V].

    The last block of the answer is filled up to `width` rows, which no row before them sees.
    """
    caches, chunk = model.trunk.make_caches(kv_bits=model.kv_bits), request.options.prefill_chunk
    blocks = [
        request.prompt[start : start + chunk] for start in range(0, len(request.prompt), chunk)
    ]
    blocks += [list(answer[start : start + width]) for start in range(0, len(answer), width)]
    last = len(blocks[-1]) - 1
    if answer:
        blocks[-1] += [0] * (width - len(blocks[-1]))
    for block in blocks:
        hidden = model.trunk.forward(mx.array([block]), caches)
        caches.commit(len(block))
        mx.eval(*caches.arrays())
    return model.trunk.logits(hidden.after_norm[:, last : last + 1])[0]


def _nuclei(params: SamplingParams, allowed: float) -> list[SamplingParams]:
    """The parameters, and where they cut a nucleus also those that cut it a little wider and narrower.

    Errors of up to e in the scores move a set of mass P by up to 2 P (1 - P) e.
    """
    if params.is_greedy or params.top_p == 1.0:
        return [params]
    edge = 2.0 * params.top_p * (1.0 - params.top_p) * allowed
    cuts = (params.top_p, min(params.top_p + edge, 1.0), max(params.top_p - edge, 1e-6))
    return [dataclasses.replace(params, top_p=cut) for cut in cuts]
