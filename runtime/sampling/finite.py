"""Telling sound logits from NaN and infinity before a token is chosen from them."""

from typing import NamedTuple

import mlx.core as mx
import numpy as np


class NonFinite(NamedTuple):
    """How many logits of one row are not finite, by kind."""

    nan: int
    positive_infinity: int
    negative_infinity: int
    vocab_size: int

    def __str__(self) -> str:
        return (
            f"{self.nan} NaN, {self.positive_infinity} +inf and {self.negative_infinity} -inf"
            f" of {self.vocab_size} logits"
        )


def finite_rows(logits: mx.array) -> mx.array:
    """Whether a token can be chosen from each row  # [R, V] -> bool [R], lazy.

    A row is sound when it has no NaN, no +inf and at least one finite logit; single -inf are
    masks. The row's maximum shows all of it, for NaN passes through a maximum.
    """
    return mx.isfinite(mx.max(logits, axis=-1))


def describe_nonfinite(row: mx.array) -> NonFinite:
    """Count the logits of one row that are not finite  # [V]. Evaluates the row."""
    values = np.array(row.astype(mx.float32))
    return NonFinite(
        nan=int(np.isnan(values).sum()),
        positive_infinity=int(np.isposinf(values).sum()),
        negative_infinity=int(np.isneginf(values).sum()),
        vocab_size=values.size,
    )
