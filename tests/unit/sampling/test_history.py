"""Counters of committed tokens."""

import pytest

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.sampling import TokenHistory


def test_prompt_counts_as_context_and_not_as_completion() -> None:
    history = TokenHistory(5, [1, 1, 4])
    assert history.context_counts.tolist() == [0, 2, 0, 0, 1]
    assert history.completion_counts.tolist() == [0, 0, 0, 0, 0]


def test_appended_tokens_count_as_both() -> None:
    history = TokenHistory(5, [1])
    history.append([2, 1, 2])
    history.append([])
    history.append([2])
    assert history.context_counts.tolist() == [0, 2, 3, 0, 0]
    assert history.completion_counts.tolist() == [0, 1, 3, 0, 0]


def test_counts_read_earlier_do_not_change() -> None:
    history = TokenHistory(3, [])
    before = history.completion_counts
    history.append([0])
    assert before.tolist() == [0, 0, 0]


def test_histories_share_nothing() -> None:
    first, second = TokenHistory(3, [0]), TokenHistory(3, [0])
    first.append([1])
    assert second.context_counts.tolist() == [1, 0, 0]


@pytest.mark.parametrize("stray", [-1, 5, 10**6])
def test_an_id_outside_the_vocabulary_is_refused(stray: int) -> None:
    with pytest.raises(InvalidRequestError, match=str(stray)):
        TokenHistory(5, [0, stray])
    history = TokenHistory(5, [0])
    with pytest.raises(InvalidRequestError, match=str(stray)):
        history.append([stray])
    assert history.context_counts.tolist() == [1, 0, 0, 0, 0]
