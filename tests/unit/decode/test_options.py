"""Options out of range are refused before anything is computed, naming the key."""

from __future__ import annotations

from typing import Any

import pytest

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.model import parse_options


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 2.5),
        ("max_tokens", "12"),
        ("max_tokens", True),
        ("prefill_chunk", 0),
        ("prefill_chunk", 1.5),
        ("depth", -1),
        ("depth", 9),
        ("depth", "deep"),
        ("depth", 1.0),
        ("depth", True),
        ("acceptance", "equal"),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("stop", ["a", ""]),
        ("stop", "END"),
        ("stop", [1]),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_key(key: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=key) as caught:
        parse_options({key: value})
    assert caught.value.key == key
    assert caught.value.exit_code == 2
    assert "expected" in caught.value.message


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match=r"unknown option 'temp'.*temperature"):
        parse_options({"temp": 1.0})


@pytest.mark.parametrize("depth", [*range(9), "auto"])
def test_every_depth_up_to_eight_is_allowed(depth: Any) -> None:
    assert GenerationOptions(depth=depth).depth == depth


def test_defaults_are_those_of_the_documentation() -> None:
    options = parse_options({})
    assert (options.max_tokens, options.depth, options.mtp) == (256, "auto", True)
    assert (options.acceptance, options.seed, options.stop) == ("coupled", None, ())
    assert (options.temperature, options.top_p, options.top_k, options.min_p) == (None,) * 4
