"""Validation of sampling settings."""

import math

import pytest

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.sampling import SamplingParams


def test_defaults_are_greedy_and_need_no_history() -> None:
    params = SamplingParams()
    assert params.is_greedy
    assert not params.has_penalties


@pytest.mark.parametrize("temperature", [0, 0.0, -0.0, 1e-9, 9.9e-6])
def test_a_vanishing_temperature_is_greedy(temperature: float) -> None:
    assert SamplingParams(temperature=temperature, top_p=0.9, top_k=5).is_greedy


@pytest.mark.parametrize("temperature", [1e-5, 0.6, 1.0, 5])
def test_any_other_temperature_samples(temperature: float) -> None:
    assert not SamplingParams(temperature=temperature, top_k=1).is_greedy


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", None),
        ("temperature", True),
        ("top_p", 0.0),
        ("top_p", -0.5),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_k", True),
        ("min_p", -0.01),
        ("min_p", 1.5),
        ("min_p", math.nan),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1.0),
        ("repetition_penalty", math.nan),
        ("repetition_penalty", math.inf),
        ("presence_penalty", math.nan),
        ("presence_penalty", -math.inf),
        ("frequency_penalty", math.inf),
        ("frequency_penalty", "2"),
        ("logit_bias", ((-1, 1.0),)),
        ("logit_bias", ((1.5, 1.0),)),
        ("logit_bias", ((3, math.nan),)),
        ("logit_bias", ((3, math.inf),)),
        ("logit_bias", ((3, 1.0), (3, 2.0))),
    ],
)
def test_a_bad_value_is_refused_by_its_key(key: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=key) as caught:
        SamplingParams(**{key: value})  # type: ignore[arg-type]
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("top_p", 1e-6),
        ("top_k", 0),
        ("min_p", 1.0),
        ("repetition_penalty", 0.5),
        ("presence_penalty", -2),
        ("frequency_penalty", 2.0),
        ("logit_bias", ((0, -100), (7, 100.0))),
    ],
)
def test_values_at_the_edge_are_taken(key: str, value: object) -> None:
    assert getattr(SamplingParams(**{key: value}), key) == value  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_each_penalty_alone_needs_the_history(key: str) -> None:
    assert SamplingParams(**{key: 0.5}).has_penalties  # type: ignore[arg-type]
