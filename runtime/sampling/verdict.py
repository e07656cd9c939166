"""What every acceptance law returns, and the steps that laws share."""

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import InternalError

DraftScores = mx.array | Sequence[mx.array]
"""Processed draft rows: one array  # [k, V], or k rows  # [1, V] each."""


class Verdict(NamedTuple):
    """How many drafts stay and the token that follows them; both are lazy device scalars."""

    accepted: mx.array  # [] int32
    next_token: mx.array  # [] int32


def choose(scores: mx.array) -> mx.array:
    """The token of the highest score in each row, the lowest id of equals  # [..., V] -> [...]."""
    return mx.argmax(scores, axis=-1).astype(mx.int32)


def leading(flags: mx.array) -> mx.array:
    """Number of true flags before the first false one  # bool [k] -> [] int32."""
    return mx.cumprod(flags.astype(mx.int32)).sum()


def match(tokens: mx.array, drafts: mx.array) -> Verdict:
    """Keep drafts while they equal the target's own tokens  # [k + 1], [k]."""
    num_drafts = check_rows(tokens, drafts)
    if num_drafts == 0:
        return Verdict(mx.array(0, dtype=mx.int32), tokens[0])
    accepted = leading(tokens[:num_drafts] == drafts)
    return Verdict(accepted, mx.take(tokens, accepted))


def check_rows(target: mx.array, drafts: mx.array) -> int:
    """The number of drafts k. Raises InternalError unless the target has k + 1 rows."""
    num_drafts = drafts.shape[0]
    if target.shape[0] != num_drafts + 1:
        raise InternalError(
            f"{num_drafts} drafts need {num_drafts + 1} target rows; got {target.shape[0]}."
        )
    return num_drafts


def draft_rows(draft: DraftScores, num_drafts: int) -> mx.array:
    """The draft rows as one array  # [k, V]. Raises InternalError unless there are k."""
    rows = draft if isinstance(draft, mx.array) else mx.concatenate(list(draft))
    if rows.shape[0] != num_drafts:
        raise InternalError(f"{num_drafts} drafts came with {rows.shape[0]} rows of their law.")
    return rows
