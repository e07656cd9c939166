"""Coupled acceptance: the text is a function of seed and target, not of depth or drafter."""

import numpy as np
import pytest

from mtplx.runtime.sampling import SamplingParams
from tests.exact.synthetic import Decoded, Logits, blurred, decode, markov_logits

VOCAB = 24
PROMPT = [3, 1, 4, 1, 5]

TARGET = markov_logits(1, VOCAB)

DRAFTERS: dict[str, Logits] = {
    "the target itself": TARGET,
    "a good drafter": blurred(TARGET, 2, VOCAB, 0.5),
    "a poor drafter": blurred(TARGET, 3, VOCAB, 3.0),
    "an unrelated drafter": markov_logits(4, VOCAB),
    "a stuck drafter": lambda _: np.eye(VOCAB, dtype=np.float32)[7] * 50,
}

PARAMS = [
    pytest.param(SamplingParams(temperature=0.8, top_p=0.95, top_k=10), id="filters"),
    pytest.param(SamplingParams(temperature=1.0), id="no filter"),
    pytest.param(
        SamplingParams(
            temperature=0.9,
            top_p=0.9,
            min_p=0.01,
            repetition_penalty=1.3,
            presence_penalty=0.2,
            frequency_penalty=0.4,
            logit_bias=((2, 1.0), (9, -2.0)),
        ),
        id="penalties",
    ),
    pytest.param(SamplingParams(repetition_penalty=1.3, frequency_penalty=-2.0), id="greedy"),
]


def run(
    params: SamplingParams, drafter: Logits, depth: int, seed: int = 5, acceptance: str = "coupled"
) -> Decoded:
    return decode(
        TARGET,
        drafter,
        params,
        PROMPT,
        vocab_size=VOCAB,
        seed=seed,
        acceptance=acceptance,
        depth=depth,
        num_tokens=60,
    )


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_tokens_are_the_same_at_every_depth_and_for_every_drafter(
    params: SamplingParams, drafter: str
) -> None:
    plain = run(params, TARGET, 0).tokens
    for depth in (1, 3, 5, 8):
        assert run(params, DRAFTERS[drafter], depth).tokens == plain


@pytest.mark.parametrize("acceptance", ["rejection", "block"])
def test_greedy_tokens_are_the_same_under_every_law(acceptance: str) -> None:
    params = SamplingParams(temperature=1e-9, repetition_penalty=1.3)
    plain = run(params, TARGET, 0).tokens
    for drafter in DRAFTERS.values():
        assert run(params, drafter, 3, acceptance=acceptance).tokens == plain


def test_another_seed_gives_another_text() -> None:
    params = SamplingParams(temperature=1.0)
    texts = {tuple(run(params, TARGET, 0, seed=seed).tokens) for seed in range(8)}
    assert len(texts) == 8


def test_drafts_of_the_target_itself_are_all_accepted() -> None:
    params = SamplingParams(temperature=0.9, top_k=8, presence_penalty=0.3)
    decoded = run(params, TARGET, 3)
    assert decoded.accepted == decoded.drafted


def test_a_better_drafter_is_accepted_more_often() -> None:
    params = SamplingParams(temperature=0.8)
    rates = [
        run(params, DRAFTERS[name], 1).accepted
        for name in ("a good drafter", "a poor drafter", "a stuck drafter")
    ]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]


@pytest.mark.parametrize("acceptance", ["coupled", "rejection", "block"])
def test_the_same_seed_repeats_the_same_text(acceptance: str) -> None:
    params = SamplingParams(temperature=0.9, top_p=0.95)
    first = run(params, DRAFTERS["a good drafter"], 3, acceptance=acceptance)
    again = run(params, DRAFTERS["a good drafter"], 3, acceptance=acceptance)
    assert first == again
