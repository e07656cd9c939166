"""Greedy text with MTP equals the PyTorch continuation, whatever the depth, chunk or policy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from tests.support.checkpoints import TRAINED, TrainedName, reference, require_checkpoint
from tests.support.ties import explain, first_difference

DEPTHS = (0, 1, 2, 3, 4, 8)
CHUNKS = (1, 7, 4096)
TIE = 0.02


@lru_cache(maxsize=1)
def _model(family: TrainedName) -> Model:
    return load(require_checkpoint(family))


def _check(family: TrainedName, prompt: int, **options: Any) -> None:
    expected = reference(family)
    model = _model(family)
    ids = expected[f"p{prompt}.prompt"].tolist()
    greedy = expected[f"p{prompt}.greedy"].tolist()
    found = model.generate(
        ids, temperature=0.0, max_tokens=len(greedy), ignore_end_tokens=True, **options
    )
    assert len(found.token_ids) == len(greedy)
    index = first_difference(greedy, found.token_ids)
    if index is not None:
        gap = float(expected[f"p{prompt}.greedy_gap"][index])
        print(f"tie: {family} p{prompt} {options}: token {index}, gap {gap:.4f}")
        assert gap < TIE, f"token {index} differs with a gap of {gap} ({options})"


ONE_QUICKLY = [0, pytest.param(1, marks=pytest.mark.slow)]


@pytest.mark.parametrize("family", TRAINED)
@pytest.mark.parametrize("prompt", [0, 1])
def test_greedy_text_is_the_reference_at_every_depth(family: TrainedName, prompt: int) -> None:
    for depth in DEPTHS:
        _check(family, prompt, depth=depth)


@pytest.mark.parametrize("family", TRAINED)
@pytest.mark.parametrize("prompt", ONE_QUICKLY)
def test_greedy_text_is_the_reference_for_every_prefill_chunk(
    family: TrainedName, prompt: int
) -> None:
    for chunk in CHUNKS:
        for depth in (0, 3):
            _check(family, prompt, depth=depth, prefill_chunk=chunk)


@pytest.mark.parametrize("family", TRAINED)
@pytest.mark.parametrize("acceptance", ["rejection", "block"])
def test_every_law_is_the_argmax_match_at_temperature_zero(
    family: TrainedName, acceptance: str
) -> None:
    _check(family, 1, depth=3, acceptance=acceptance)


@pytest.mark.parametrize("family", TRAINED)
@pytest.mark.parametrize("prompt", ONE_QUICKLY)
def test_greedy_text_is_the_reference_with_adaptive_depth(family: TrainedName, prompt: int) -> None:
    _check(family, prompt, depth="auto")


@pytest.mark.parametrize("family", TRAINED)
def test_temperature_near_zero_is_greedy(family: TrainedName) -> None:
    expected = reference(family)
    model = _model(family)
    ids = expected["p1.prompt"].tolist()
    runs = [
        model.generate(ids, temperature=t, max_tokens=24, depth=3, ignore_end_tokens=True)
        for t in (0, 0.0, 1e-9)
    ]
    assert len({run.token_ids for run in runs}) == 1
    plain = model.generate(ids, temperature=0.0, max_tokens=24, depth=0, ignore_end_tokens=True)
    gap = explain(model, ids, plain.token_ids, runs[0].token_ids, temperature=0.0)
    assert gap is None or gap < TIE
