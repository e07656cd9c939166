"""Coupled acceptance: the text depends on the seed only, not on the depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from tests.support.checkpoints import TRAINED, TrainedName, require_checkpoint
from tests.support.prompts import PROMPTS
from tests.support.ties import explain

DEPTHS = (1, 3, 5)
TIE = 1e-3
SAMPLING: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95, "top_k": 40}
TOKENS = 48


def _ties(
    model: Model, prompts: Sequence[str | list[dict[str, str]]], seeds: Sequence[int], **extra: Any
) -> list[str]:
    """Runs that part from plain decoding at a numeric tie; any other difference fails."""
    ties = []
    for prompt in prompts:
        ids = model.encode_prompt(prompt, raw=isinstance(prompt, str))
        for seed in seeds:
            options = {**SAMPLING, **extra, "seed": seed}
            plain = model.generate(ids, depth=0, max_tokens=TOKENS, **options)
            for depth in DEPTHS:
                found = model.generate(ids, depth=depth, max_tokens=TOKENS, **options)
                gap = explain(model, ids, plain.token_ids, found.token_ids, **options)
                if gap is not None:
                    assert gap < TIE, f"{prompt!r} seed {seed} depth {depth}: gap {gap}"
                    ties.append(f"{prompt!r} seed {seed} depth {depth}: gap {gap:.2g}")
    return ties


@pytest.mark.parametrize("family", TRAINED)
def test_same_tokens_at_every_depth_for_equal_seeds(family: TrainedName) -> None:
    model = load(require_checkpoint(family))
    ties = _ties(model, PROMPTS[::5], seeds=(1,))
    print(f"{family}: numeric ties {ties}")
    assert len(ties) <= 1


@pytest.mark.parametrize("family", TRAINED)
def test_same_tokens_with_penalties_and_bias(family: TrainedName) -> None:
    model = load(require_checkpoint(family))
    ties = _ties(
        model,
        PROMPTS[2:20:9],
        seeds=(7,),
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        logit_bias={5: 1.5, 20: -2.0},
        min_p=0.02,
    )
    assert len(ties) <= 1, ties


def test_different_seeds_give_different_texts() -> None:
    model = load(require_checkpoint("mimo"))
    texts = {
        model.generate(PROMPTS[-1], seed=seed, depth=3, max_tokens=TOKENS, **SAMPLING).token_ids
        for seed in range(4)
    }
    assert len(texts) == 4


@pytest.mark.slow
@pytest.mark.parametrize("family", TRAINED)
def test_same_tokens_for_twenty_prompts_and_three_seeds(family: TrainedName) -> None:
    model = load(require_checkpoint(family))
    ties = _ties(model, PROMPTS, seeds=(1, 2, 3))
    print(f"{family}: numeric ties {ties}")
    assert len(ties) <= 1
