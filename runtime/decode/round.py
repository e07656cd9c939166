"""One round: draft, verify, accept, commit. After Leviathan et al. 2211.17192, with the model's own MTP head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx

from mtplx.contracts.errors import NumericError
from mtplx.runtime.decode.draft import draft
from mtplx.runtime.decode.engine import Engine
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.sampling.acceptance import Verdict
from mtplx.runtime.sampling.finite import describe_nonfinite, finite_rows
from mtplx.runtime.sampling.logprobs import TokenLogprobs, token_logprobs


class Round(NamedTuple):
    """`tokens` committed by the round, of `drafted` proposals `accepted` of them, and what was asked of `logprobs`."""

    tokens: list[int]
    drafted: int
    accepted: int
    logprobs: list[TokenLogprobs]


def run_round(
    engine: Engine, state: DecodeState, depth: int, keep: Callable[[list[int]], int]
) -> Round:
    """Extend `state` by 1 to `depth` + 1 tokens with one trunk forward and one host sync.

    Reporting log-probabilities takes one sync more, a constraint one a draft.

    `keep(tokens)` says how many of the emitted tokens stay (at least one): an answer may end inside the block, and
    the caches must not hold what was not emitted.

    Raises:
        NumericError: a row of the trunk's logits that decides a token is not finite. No token is committed, and the
            trunk's caches are as before.
    """
    first = len(state.tokens)
    drafts = draft(engine, state, depth)

    last = mx.array(state.tokens[-1:], dtype=mx.int32)
    state.trunk_caches.arm()
    hidden = engine.trunk.forward(mx.concatenate([last, drafts.tokens])[None], state.trunk_caches)
    logits = engine.trunk.logits(hidden.after_norm)[0]

    allowed = mx.concatenate(list(drafts.masks)) if drafts.masks else None
    target = engine.pipeline.scores(logits, engine.history, drafts.tokens, 0, allowed)
    verdict = engine.acceptance.accept(target, drafts.scores, drafts.tokens, first)
    finite = finite_rows(logits)
    try:
        accepted, tokens = _sync(verdict, drafts.tokens, finite)
    except _NonFiniteError:
        state.trunk_caches.rollback()
        raise NumericError(_nonfinite_message(logits, finite, first)) from None

    kept = keep(tokens)
    top = engine.logprobs
    logprobs = [] if top is None else token_logprobs(logits, tokens[:kept], top)
    commit(engine, state, tokens[:kept])
    if engine.head is not None and state.head_caches is not None:
        state.unread.append(engine.head.feed(hidden)[:, :kept])
    return Round(tokens[:kept], drafts.tokens.size, min(accepted, kept), logprobs)


def commit(engine: Engine, state: DecodeState, tokens: list[int]) -> None:
    """Make `tokens` part of the sequence: one trunk row was verified for each."""
    state.trunk_caches.commit(len(tokens))
    state.tokens.extend(tokens)
    if engine.history is not None:
        engine.history.append(tokens)
    if engine.constraint is not None:
        engine.constraint.commit(tokens)


class _NonFiniteError(Exception):
    """A verified row has no finite logits."""


def _sync(verdict: Verdict, drafts: mx.array, finite: mx.array) -> tuple[int, list[int]]:
    """The round's only wait for the device: everything the host must know, in one array."""
    # Rows behind the first rejected draft decide nothing, so only those up to it must be sound.
    num_sound = mx.cumprod(finite.astype(mx.int32)).sum()
    head = mx.stack([num_sound, verdict.accepted, verdict.next_token])
    told: Any = mx.concatenate([head, drafts]).tolist()
    sound, accepted, next_token, *drafted = told
    if sound <= accepted:
        raise _NonFiniteError
    return accepted, [*drafted[:accepted], next_token]


def _nonfinite_message(logits: mx.array, finite: mx.array, first: int) -> str:
    flags: Any = finite.tolist()
    row = flags.index(False)
    counts = describe_nonfinite(logits[row])
    return f"the model produced unusable logits at position {first + row} (row {row}): {counts}"
