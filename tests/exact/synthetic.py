"""Small synthetic models and the decoding loop around them, for tests of the acceptance laws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mtplx.runtime.sampling import (
    Noise,
    SamplingParams,
    SamplingPipeline,
    TokenHistory,
    make_acceptance,
)

Logits = Callable[[Sequence[int]], NDArray[np.float32]]
"""Logits of the next token after a context  # -> [V]."""


def markov_logits(seed: int, vocab_size: int, *, order: int = 2, spread: float = 2.0) -> Logits:
    """A model that looks at the last `order` tokens."""
    shape = (vocab_size,) * (order + 1)
    table = (np.random.default_rng(seed).normal(size=shape) * spread).astype(np.float32)

    def logits(context: Sequence[int]) -> NDArray[np.float32]:
        row: NDArray[np.float32] = table[tuple(context[-order:])]
        return row

    return logits


def blurred(model: Logits, seed: int, vocab_size: int, noise: float) -> Logits:
    """A drafter that resembles `model`."""
    error = markov_logits(seed, vocab_size, order=1, spread=noise)
    return lambda context: model(context) + error(context)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Tokens of one decoding and what became of its drafts."""

    tokens: list[int]
    drafted: int
    accepted: int


def decode(
    target: Logits,
    drafter: Logits,
    params: SamplingParams,
    prompt: Sequence[int],
    *,
    vocab_size: int,
    seed: int,
    acceptance: str,
    depth: int,
    num_tokens: int,
) -> Decoded:
    """Decode at a fixed depth with the same steps as the real round."""
    pipeline = SamplingPipeline(params, vocab_size)
    history = TokenHistory(vocab_size, prompt)
    law = make_acceptance(acceptance, params, Noise(seed, vocab_size))
    context, drafted, kept = list(prompt), 0, 0

    def rows(model: Logits, drafts: list[int], first: int, count: int) -> mx.array:
        after = [context + drafts[: first + r] for r in range(count)]
        block = mx.array(np.stack([model(tokens) for tokens in after]))
        return pipeline.scores(block, history, mx.array(drafts, dtype=mx.int32), first)

    while len(context) < len(prompt) + num_tokens:
        drafts: list[int] = []
        reported = []
        for step in range(depth):
            reported.append(rows(drafter, drafts, step, 1))
            drafts.append(cast(int, law.propose(reported[-1], len(context) + step).item()))
        scores = rows(target, drafts, 0, depth + 1)
        verdict = law.accept(scores, reported, mx.array(drafts, dtype=mx.int32), len(context))
        accepted = cast(int, verdict.accepted.item())
        emitted = [*drafts[:accepted], cast(int, verdict.next_token.item())]
        history.append(emitted)
        context += emitted
        drafted, kept = drafted + depth, kept + accepted
    return Decoded(context[len(prompt) : len(prompt) + num_tokens], drafted, kept)
