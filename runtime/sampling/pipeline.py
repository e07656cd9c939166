"""From logits to the processed distribution: the one order, used by plain decoding and MTP alike.

Penalties, logit bias, grammar mask, temperature, top-k, top-p, min-p.
"""

import math

import mlx.core as mx
import numpy as np

from mtplx.contracts.errors import InternalError, InvalidRequestError
from mtplx.runtime.sampling.filters import keep_min_p, keep_top_k, keep_top_p, log_softmax
from mtplx.runtime.sampling.history import TokenHistory
from mtplx.runtime.sampling.params import SamplingParams


class SamplingPipeline:
    """Processes rows of logits for one request; options that are off cost nothing.

    Raises InvalidRequestError for a bias on a token outside the vocabulary.
    """

    def __init__(self, params: SamplingParams, vocab_size: int) -> None:
        self.params = params
        self.vocab_size = vocab_size
        self._bias = _bias_vector(params.logit_bias, vocab_size)

    @property
    def needs_history(self) -> bool:
        """Whether `scores` reads the committed tokens."""
        return self.params.has_penalties

    def scores(
        self,
        logits: mx.array,
        history: TokenHistory | None,
        drafts: mx.array,
        first: int,
        allowed: mx.array | None = None,
    ) -> mx.array:
        """Normalised log-probabilities of the processed rows, -inf where filtered.

        `logits`  # [R, V]; result float32  # [R, V]. Row r follows the committed tokens and
        `drafts[: first + r]`  # drafts int32 [D], D >= first + R - 1. `allowed`  # bool [R, V],
        None for all. Greedy rows get penalties, bias and mask only and stay logits. Nothing is
        evaluated here.
        """
        scores = logits.astype(mx.float32)
        if self.needs_history:
            if history is None:
                raise InternalError("Penalties need the token history and got none.")
            scores = self._penalised(scores, history, drafts, first)
        if self._bias is not None:
            scores = scores + self._bias
        if allowed is not None:
            scores = mx.where(allowed, scores, -math.inf)
        return scores if self.params.is_greedy else self._distribution(scores)

    def _penalised(
        self, scores: mx.array, history: TokenHistory, drafts: mx.array, first: int
    ) -> mx.array:
        """Apply the three penalties, each row with its own history  # [R, V]."""
        params, rows = self.params, scores.shape[0]
        if params.repetition_penalty != 1.0:
            penalty = params.repetition_penalty
            counts = _counts_by_row(history.context_counts, drafts, first, rows)
            # Keskar et al. 1909.05858: positive scores are divided, negative ones multiplied.
            # Of the two results that is the lower one, or the higher for a reward below 1.
            choose = mx.minimum if penalty > 1.0 else mx.maximum
            changed = choose(scores * (1.0 / penalty), scores * penalty)
            scores = mx.where(counts > 0, changed, scores)
        if params.presence_penalty != 0.0 or params.frequency_penalty != 0.0:
            counts = _counts_by_row(history.completion_counts, drafts, first, rows)
            if params.presence_penalty != 0.0:
                scores = scores - params.presence_penalty * (counts > 0)
            if params.frequency_penalty != 0.0:
                scores = scores - params.frequency_penalty * counts
        return scores

    def _distribution(self, scores: mx.array) -> mx.array:
        """Temperature and the filters  # [R, V] -> log-probabilities [R, V]."""
        params = self.params
        # The highest score becomes 0 first, so that a low temperature cannot overflow.
        scores = scores - mx.max(scores, axis=-1, keepdims=True)
        if params.temperature != 1.0:
            scores = scores * (1.0 / params.temperature)
        if 0 < params.top_k < self.vocab_size:
            return keep_top_k(scores, params.top_k, params.top_p, params.min_p)
        if params.top_p < 1.0:
            return keep_top_p(scores, params.top_p, params.min_p)
        if params.min_p > 0.0:
            return keep_min_p(scores, params.min_p)
        return log_softmax(scores)


def _counts_by_row(counts: mx.array, drafts: mx.array, first: int, rows: int) -> mx.array:
    """`counts` plus the drafts each row follows  # [V] -> [R, V]."""
    pairs = [(row, seen) for row in range(rows) for seen in range(first + row)]
    by_row = mx.broadcast_to(counts, (rows, counts.shape[0]))
    if not pairs:
        return by_row
    row_ids, draft_ids = (
        mx.array(list(column), dtype=mx.int32) for column in zip(*pairs, strict=True)
    )
    return by_row.at[row_ids, drafts[draft_ids]].add(1.0)


def _bias_vector(logit_bias: tuple[tuple[int, float], ...], vocab_size: int) -> mx.array | None:
    """The biases as float32  # [V], None when there are none."""
    if not logit_bias:
        return None
    vector = np.zeros(vocab_size, dtype=np.float32)
    for token, bias in logit_bias:
        if token >= vocab_size:
            raise InvalidRequestError(
                f"logit_bias names token {token}; this model has tokens 0 to {vocab_size - 1}.",
                key="logit_bias",
            )
        vector[token] = bias
    return mx.array(vector)
