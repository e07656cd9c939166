"""Top-k, top-p and min-p on a block of scaled scores.

Each filter keeps a prefix of the vocabulary ordered by score, equal scores by lower token id.
So the three together come down to one number a row: how many tokens are kept. It is read from
the sorted scores, and the tokens are then marked without sorting their ids.
"""

import math

import mlx.core as mx

_FILTERED = -math.inf


def log_softmax(scores: mx.array) -> mx.array:
    """Normalised log-probabilities  # [R, V] -> [R, V]."""
    return scores - mx.logsumexp(scores, axis=-1, keepdims=True)


def keep_min_p(scores: mx.array, min_p: float) -> mx.array:
    """Log-probabilities of the tokens at least `min_p` times as likely as the first  # [R, V].

    The highest score of each row must be 0.
    """
    return log_softmax(mx.where(scores >= math.log(min_p), scores, _FILTERED))


def keep_top_k(scores: mx.array, top_k: int, top_p: float, min_p: float) -> mx.array:
    """Log-probabilities after top-k, then top-p of what is left, then min-p  # [R, V].

    Only the `top_k` survivors are sorted. The highest score of each row must be 0.
    """
    ranked = mx.sort(mx.topk(scores, top_k, axis=-1), axis=-1)  # [R, k], ascending
    masses = mx.exp(ranked)
    kept = mx.full((scores.shape[0], 1), top_k, dtype=mx.int32)
    if top_p < 1.0:
        kept = _nucleus_size(masses, top_p * masses.sum(axis=-1, keepdims=True))
    if min_p > 0.0:
        kept = mx.minimum(kept, _count(ranked >= math.log(min_p)))
    is_kept = mx.arange(top_k) >= top_k - kept
    log_total = mx.log(mx.where(is_kept, masses, 0.0).sum(axis=-1, keepdims=True))
    return mx.where(_first_of(scores, ranked, kept), scores - log_total, _FILTERED)


def keep_top_p(scores: mx.array, top_p: float, min_p: float) -> mx.array:
    """Log-probabilities after top-p, then min-p  # [R, V].

    The highest score of each row must be 0.
    """
    vocab_size = scores.shape[-1]
    masses = mx.exp(scores)
    # Tokens lighter than this weigh less than 1 - top_p together, so none is in the nucleus.
    # Raising them all to one value leaves the nucleus alone and makes the sort several times
    # faster, for most of a vocabulary is in that tail.
    floor = (1.0 - top_p) / vocab_size
    ranked = mx.sort(mx.maximum(masses, floor), axis=-1)  # [R, V], ascending
    kept = _nucleus_size(ranked, top_p * masses.sum(axis=-1, keepdims=True))
    if min_p > 0.0:
        kept = mx.minimum(kept, _count(ranked >= min_p))
    is_kept = mx.arange(vocab_size) >= vocab_size - kept
    log_total = mx.log(mx.where(is_kept, ranked, 0.0).sum(axis=-1, keepdims=True))
    return mx.where(_first_of(masses, ranked, kept), scores - log_total, _FILTERED)


def _nucleus_size(ranked: mx.array, wanted: mx.array) -> mx.array:
    """Size of the smallest set of heaviest tokens that weighs `wanted`  # [R, N] -> [R, 1]."""
    heavier = mx.cumsum(ranked, axis=-1, reverse=True, inclusive=False)
    return mx.maximum(_count(heavier < wanted), 1)


def _first_of(values: mx.array, ranked: mx.array, kept: mx.array) -> mx.array:
    """Mark the `kept` largest of `values`, equal ones by lower id  # [R, V] -> bool [R, V].

    `ranked` holds the largest values in ascending order  # [R, N].
    """
    last = mx.take_along_axis(ranked, ranked.shape[-1] - kept, axis=-1)
    room = kept - _count(ranked > last)
    tied = values == last
    return (values > last) | (tied & (mx.cumsum(tied, axis=-1) <= room))


def _count(flags: mx.array) -> mx.array:
    """Number of true flags a row  # [R, N] -> int32 [R, 1]."""
    return flags.sum(axis=-1, keepdims=True)
