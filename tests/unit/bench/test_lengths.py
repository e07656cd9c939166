"""Lengths without room are refused by name, or left out with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.contracts.errors import PromptTooLongError, ResourceError
from mtplx.runtime.bench.lengths import fit_lengths, misfit
from mtplx.runtime.bench.tasks import Room

AMPLE = Room(bytes_per_token=100.0, free_bytes=2**40)


def test_a_prompt_and_its_answer_may_fill_the_context() -> None:
    assert misfit(100, 28, context=128, room=AMPLE) is None


def test_one_token_more_is_refused_with_what_would_fit() -> None:
    error = misfit(101, 28, context=128, room=AMPLE)
    assert isinstance(error, PromptTooLongError)
    assert "101 tokens and 28 after them" in error.message
    assert error.hint == "Up to 100 tokens do."


def test_caches_that_would_not_fit_into_memory_are_refused() -> None:
    error = misfit(10_000, 0, context=None, room=Room(2**20, 2**30))
    assert isinstance(error, ResourceError)
    assert "24.4 GiB" in error.message
    assert "1.0 GiB are free" in error.message


@given(st.lists(st.integers(1, 300), min_size=1), st.integers(0, 50), st.integers(1, 400))
def test_of_the_usual_lengths_each_is_kept_or_left_out_by_name(
    lengths: list[int], answer: int, context: int
) -> None:
    fitting = sorted({length for length in lengths if length + answer <= context})
    if not fitting:
        with pytest.raises(PromptTooLongError):
            fit_lengths(lengths, answer, context=context, room=AMPLE, insist=False)
        return
    kept, left_out = fit_lengths(lengths, answer, context=context, room=AMPLE, insist=False)
    assert kept == fitting
    others = sorted(set(lengths) - set(fitting))
    assert [item.name for item in left_out] == [f"{length} tokens" for length in others]


def test_a_length_that_was_asked_for_is_insisted_on() -> None:
    with pytest.raises(PromptTooLongError, match="512 tokens"):
        fit_lengths([64, 512], 1, context=128, room=AMPLE, insist=True)
