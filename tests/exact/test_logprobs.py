"""Reported log-probabilities are the trunk's own, whatever drafted the tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.model import Model
from mtplx.runtime.sampling.logprobs import TokenLogprobs, token_logprobs
from tests.support.tiny_families import FAMILY_NAMES, FamilyName

PROMPT = [5, 9, 12, 30, 7]
OPTIONS: dict[str, Any] = {"max_tokens": 12, "seed": 3, "ignore_end_tokens": True}


def reported(model: Model, **options: Any) -> tuple[list[int], list[TokenLogprobs]]:
    events = list(model.stream(PROMPT, **{**OPTIONS, **options}))
    for event in events:
        assert [entry.token_id for entry in event.logprobs] == list(event.token_ids)
    return [t for e in events for t in e.token_ids], [p for e in events for p in e.logprobs]


def expected(model: Model, tokens: list[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """log softmax of one forward over prompt and answer: row i predicts answer token i."""
    caches = model.trunk.make_caches()
    hidden = model.trunk.forward(mx.array([[*PROMPT, *tokens]]), caches)
    logits = np.array(model.trunk.logits(hidden.after_norm)[0].astype(mx.float32), dtype=np.float64)
    rows = logits[len(PROMPT) - 1 : -1]
    shifted = rows - rows.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_token_has_the_trunks_own_law(
    models: Callable[[FamilyName], Model], family: FamilyName
) -> None:
    model = models(family)
    for depth in (0, 3) if model.has_head else (0,):
        # Filters and penalties decide what is drawn, and do not touch what is reported.
        how = {"temperature": 0.8, "top_k": 5, "presence_penalty": 0.7}
        tokens, entries = reported(model, depth=depth, logprobs=4, **how)
        law = expected(model, tokens)
        for row, entry in zip(law, entries, strict=True):
            assert entry.logprob == pytest.approx(row[entry.token_id], abs=2e-4)
            assert [item.logprob for item in entry.top] == pytest.approx(
                np.sort(row)[::-1][:4].tolist(), abs=2e-4
            )
            assert [item.logprob for item in entry.top] == sorted(
                (item.logprob for item in entry.top), reverse=True
            )


def test_asking_for_them_changes_no_token(models: Callable[[FamilyName], Model]) -> None:
    model = models("qwen3_5")
    plain = model.generate(PROMPT, depth=3, temperature=0.7, **OPTIONS)
    tokens, entries = reported(model, depth=3, temperature=0.7, logprobs=0)
    assert tuple(tokens) == plain.token_ids
    assert all(entry.top == () for entry in entries)
    assert all(not event.logprobs for event in model.stream(PROMPT, depth=3, **OPTIONS))


def test_equal_scores_are_listed_by_token_id() -> None:
    logits = mx.array([[0.0, 1.0, 1.0, 0.0]])
    (entry,) = token_logprobs(logits, [3], 4)
    assert [item.token_id for item in entry.top] == [1, 2, 0, 3]
    assert np.exp([item.logprob for item in entry.top]).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("value", [-1, 21, True, "3"])
def test_a_wrong_number_is_refused_by_name(
    models: Callable[[FamilyName], Model], value: object
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        models("llama").stream(PROMPT, logprobs=value)
    assert refused.value.key == "logprobs"
