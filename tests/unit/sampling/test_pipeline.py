"""The sampling pipeline against float64 numpy, row by row."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mtplx.contracts.errors import InternalError, InvalidRequestError
from mtplx.runtime.sampling import SamplingParams, SamplingPipeline, TokenHistory
from tests.unit.sampling.reference import Row, distribution, penalise, process, softmax

NO_DRAFTS = mx.zeros((0,), dtype=mx.int32)

FILTERS = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=0.8, top_k=3),
    SamplingParams(temperature=0.8, top_k=11),
    SamplingParams(temperature=0.8, top_k=12),
    SamplingParams(temperature=0.8, top_k=500),
    SamplingParams(temperature=1.3, top_p=0.6),
    SamplingParams(temperature=1.0, min_p=0.2),
    SamplingParams(temperature=0.9, top_k=6, top_p=0.8),
    SamplingParams(temperature=0.9, top_k=6, min_p=0.15),
    SamplingParams(temperature=0.9, top_p=0.9, min_p=0.15),
    SamplingParams(temperature=0.9, top_k=8, top_p=0.9, min_p=0.1),
]


def scores_of(
    logits: Row | list[list[float]],
    params: SamplingParams,
    history: TokenHistory | None = None,
    drafts: mx.array = NO_DRAFTS,
    first: int = 0,
) -> Row:
    block = mx.array(np.array(logits, dtype=np.float32))
    pipeline = SamplingPipeline(params, block.shape[1])
    return np.array(pipeline.scores(block, history, drafts, first), dtype=np.float64)


def normal(shape: tuple[int, ...], seed: int = 0) -> Row:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(np.float64) * 2


@pytest.mark.parametrize("params", FILTERS, ids=str)
def test_filters_match_the_reference(params: SamplingParams) -> None:
    logits = normal((9, 12))
    expected = [process(row, params) for row in logits]
    np.testing.assert_allclose(np.exp(scores_of(logits, params)), expected, atol=2e-6)


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.99])
def test_a_nucleus_that_reaches_into_a_long_flat_tail_is_kept_whole(top_p: float) -> None:
    # One likely token and two thousand that are a thousand times less likely each.
    logits = np.concatenate([[np.log(1000.0)], np.linspace(0.2, -0.2, 2000)])
    params = SamplingParams(temperature=1.0, top_p=top_p)
    expected = process(logits, params)
    scores = scores_of(logits[None], params)[0]
    assert abs(int((scores > -np.inf).sum()) - int((expected > 0).sum())) <= 1
    np.testing.assert_allclose(np.exp(scores)[:600], expected[:600], rtol=2e-3)


@pytest.mark.parametrize("params", FILTERS, ids=str)
def test_a_row_alone_equals_the_row_in_a_block_bit_for_bit(params: SamplingParams) -> None:
    logits = np.round(normal((9, 300), seed=4) * 4) / 4
    block = scores_of(logits, params)
    for r in range(9):
        np.testing.assert_array_equal(scores_of(logits[r : r + 1], params)[0], block[r])


def near_a_cut(x: Row, params: SamplingParams) -> bool:
    """Whether float32 may honestly cut elsewhere than float64: a mass lies on the limit."""
    p = softmax(x / params.temperature)
    ranked = np.sort(p)[::-1]
    if 0 < params.top_k < len(p):
        ranked = ranked[: params.top_k] / ranked[: params.top_k].sum()
    on_top_p = np.abs(np.cumsum(ranked) - params.top_p).min() < 1e-5
    on_min_p = np.abs(ranked / ranked[0] - params.min_p).min() < 1e-5
    return bool((params.top_p < 1 and on_top_p) or (0 < params.min_p < 1 and on_min_p))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[float], SamplingParams]:
    # Quarters make ties common and are exact in float32.
    quarters = st.integers(-40, 40).map(lambda n: n / 4)
    logits = draw(st.lists(quarters, min_size=2, max_size=24))
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.25, 0.5, 1.0, 2.0])),
        top_k=draw(st.integers(0, 26)),
        top_p=draw(st.sampled_from([0.05, 0.3, 0.77, 0.95, 1.0])),
        min_p=draw(st.sampled_from([0.0, 0.03, 0.4, 1.0])),
    )
    return logits, params


@settings(max_examples=300, deadline=None, derandomize=True)
@given(cases())
def test_any_filters_on_any_logits_match_the_reference(
    case: tuple[list[float], SamplingParams],
) -> None:
    logits, params = case
    x = np.array(logits)
    assume(not near_a_cut(x, params))
    scores = scores_of([logits], params)[0]
    expected = distribution(x, params)
    np.testing.assert_array_equal(scores > -np.inf, expected > 0)
    np.testing.assert_allclose(np.exp(scores), expected, atol=2e-6)
    assert scores[int(np.argmax(x))] > -np.inf


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, top_k=2),
        SamplingParams(temperature=1.0, top_p=0.4),
        SamplingParams(temperature=1.0, top_k=5, top_p=0.4),
    ],
    ids=str,
)
def test_equal_scores_are_kept_by_lower_id(params: SamplingParams) -> None:
    # By mass each of the five equal tokens weighs .2, so top-p .4 keeps two as well.
    logits = [[-99.0, 1.0, 1.0, -99.0, 1.0, 1.0, 1.0, -99.0]] * 4
    for row in scores_of(logits, params):
        assert np.flatnonzero(row > -np.inf).tolist() == [1, 2]
        np.testing.assert_allclose(row[[1, 2]], np.log(0.5), atol=1e-6)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, top_k=1),
        SamplingParams(temperature=1.0, top_p=1e-6),
        SamplingParams(temperature=1.0, min_p=1.0),
        SamplingParams(temperature=1e-5),
    ],
    ids=str,
)
def test_the_most_likely_token_always_survives(params: SamplingParams) -> None:
    logits = normal((5, 40), seed=8)
    scores = scores_of(logits, params)
    assert scores.argmax(axis=1).tolist() == logits.argmax(axis=1).tolist()
    np.testing.assert_allclose(scores.max(axis=1), 0.0, atol=1e-6)


@pytest.mark.parametrize("params", FILTERS, ids=str)
def test_masked_tokens_stay_masked(params: SamplingParams) -> None:
    logits = normal((3, 12), seed=2)
    logits[:, [0, 5]] = -np.inf
    expected = [process(row, params) for row in logits]
    scores = scores_of(logits, params)
    np.testing.assert_allclose(np.exp(scores), expected, atol=2e-6)
    assert np.all(scores[:, [0, 5]] == -np.inf)


def test_huge_logits_at_a_low_temperature_do_not_overflow() -> None:
    scores = scores_of([[3e37, -3e37, 2.9e37]], SamplingParams(temperature=1e-4))
    assert np.exp(scores).tolist() == [[1.0, 0.0, 0.0]]


def test_greedy_without_options_returns_the_logits() -> None:
    logits = normal((2, 7))
    np.testing.assert_array_equal(scores_of(logits, SamplingParams(top_k=2, top_p=0.5)), logits)


def test_half_precision_logits_are_processed_in_float32() -> None:
    block = mx.array(normal((2, 7)).astype(np.float32)).astype(mx.bfloat16)
    pipeline = SamplingPipeline(SamplingParams(temperature=0.7), 7)
    scores = pipeline.scores(block, None, NO_DRAFTS, 0)
    assert scores.dtype == mx.float32
    np.testing.assert_allclose(np.exp(np.array(scores)).sum(axis=1), 1.0, atol=1e-6)


PENALTIES = [
    SamplingParams(repetition_penalty=1.4),
    SamplingParams(repetition_penalty=0.6),
    SamplingParams(presence_penalty=0.7),
    SamplingParams(frequency_penalty=-2.0),
    SamplingParams(frequency_penalty=2.0),
    SamplingParams(logit_bias=((2, 3.5), (9, -100.0))),
    SamplingParams(
        temperature=0.8,
        top_k=5,
        top_p=0.9,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.25,
        logit_bias=((1, -1.0), (6, 1.5)),
    ),
]


@pytest.mark.parametrize("params", PENALTIES, ids=str)
def test_each_row_is_penalised_with_committed_tokens_and_the_drafts_before_it(
    params: SamplingParams,
) -> None:
    logits, prompt, completion, drafts = normal((5, 12), seed=1), [3, 3, 8], [6, 1, 6], [6, 0, 6, 3]
    history = TokenHistory(12, prompt)
    history.append(completion)
    scores = scores_of(logits, params, history, mx.array(drafts, dtype=mx.int32))
    for r, row in enumerate(logits):
        expected = process(row, params, prompt, completion + drafts[:r])
        got = scores[r] if params.is_greedy else np.exp(scores[r])
        np.testing.assert_allclose(got, expected, atol=1e-5)
    assert history.completion_counts.tolist() == [0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("params", PENALTIES, ids=str)
def test_a_draft_step_sees_what_the_verified_row_will_see(params: SamplingParams) -> None:
    logits, drafts = normal((4, 12), seed=1), mx.array([6, 0, 6], dtype=mx.int32)
    history = TokenHistory(12, [0, 4])
    block = scores_of(logits, params, history, drafts)
    for r in range(4):
        alone = scores_of(logits[r : r + 1], params, history, drafts[:r], first=r)
        np.testing.assert_array_equal(alone[0], block[r])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=6, max_size=6),
    st.lists(st.integers(0, 5), max_size=6),
    st.lists(st.integers(0, 5), max_size=6),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from([0.5, 1.0, 1.7]),
    st.sampled_from([-1.5, 0.0, 0.4]),
    st.sampled_from([-0.5, 0.0, 2.0]),
)
def test_penalties_match_the_reference(
    logits: list[float],
    prompt: list[int],
    completion: list[int],
    drafts: list[int],
    repetition: float,
    presence: float,
    frequency: float,
) -> None:
    params = SamplingParams(
        repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency
    )
    history = TokenHistory(6, prompt)
    history.append(completion)
    rows = len(drafts) + 1
    scores = scores_of([logits] * rows, params, history, mx.array(drafts, dtype=mx.int32))
    for r in range(rows):
        expected = penalise(np.array(logits), params, prompt, completion + drafts[:r])
        np.testing.assert_allclose(scores[r], expected, rtol=1e-5, atol=1e-5)


def test_penalties_without_a_history_are_refused() -> None:
    with pytest.raises(InternalError, match="history"):
        scores_of([[0.0, 1.0]], SamplingParams(presence_penalty=1.0))


def test_a_bias_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="12") as caught:
        SamplingPipeline(SamplingParams(logit_bias=((12, 1.0),)), 12)
    assert caught.value.key == "logit_bias"


@pytest.mark.parametrize(("penalised", "expected"), [(False, False), (True, True)])
def test_history_is_needed_with_penalties_only(penalised: bool, expected: bool) -> None:
    params = SamplingParams(
        temperature=0.5, top_k=3, frequency_penalty=0.1 if penalised else 0.0, logit_bias=((0, 1),)
    )
    assert SamplingPipeline(params, 4).needs_history is expected
