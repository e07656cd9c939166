"""An answer keeps the tokens that belong to it and no others, wherever a block ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtplx.runtime.decode.stop import Answer
from mtplx.runtime.decode.text import TextStream
from tests.support.scripted import END_IDS, ScriptedTokenizer, bursts, byte_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENIZER = ScriptedTokenizer()
WIDTHS = (1, 2, 3, 4)


def make(*, max_tokens: int = 100, stops: Sequence[str] = (), text: bool = True) -> Answer:
    return Answer(
        TextStream(TOKENIZER) if text else None,
        max_tokens=max_tokens,
        end_tokens=frozenset(END_IDS),
        stops=stops,
    )


def feed(answer: Answer, tokens: list[int], width: int) -> list[str]:
    """Give bursts until the answer ends; returns what was shown after each."""
    shown = []
    for burst in bursts(tokens, width):
        kept = answer.keep(list(burst))
        shown.append(answer.new_text())
        if answer.finish_reason is not None:
            return shown
        assert kept == len(burst)
    return shown


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("end", END_IDS)
def test_an_end_token_is_kept_and_not_shown(width: int, end: int) -> None:
    answer = make()
    shown = feed(answer, [*byte_tokens("hello"), end, *byte_tokens("more")], width)
    assert answer.tokens == [*byte_tokens("hello"), end]
    assert answer.text == "".join(shown) == "hello"
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_budget_cuts_inside_a_block(width: int) -> None:
    answer = make(max_tokens=5)
    feed(answer, byte_tokens("hello world"), width)
    assert answer.tokens == byte_tokens("hello")
    assert answer.text == "hello"
    assert answer.finish_reason == "length"
    assert answer.room == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_a_stop_string_across_tokens_ends_at_the_token_that_completes_it(width: int) -> None:
    answer = make(stops=["END"])
    shown = feed(answer, byte_tokens("abENDmore"), width)
    assert answer.tokens == byte_tokens("abEND")
    assert answer.text == "".join(shown) == "ab"
    assert answer.finish_reason == "stop"


def test_what_may_begin_a_stop_string_waits_and_then_comes() -> None:
    answer = make(stops=["END"])
    answer.keep(byte_tokens("aEN"))
    assert answer.new_text() == "a"
    answer.keep(byte_tokens("x"))
    assert answer.new_text() == "ENx"
    answer.keep([*byte_tokens("E"), END_IDS[0]])
    assert answer.new_text() == "E"
    assert answer.text == "aENxE"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_budget_that_ends_inside_a_character_shows_one_replacement(width: int) -> None:
    answer = make(max_tokens=4)
    feed(answer, byte_tokens("a漢漢"), width)
    answer = make(max_tokens=3)
    feed(answer, byte_tokens("a漢漢"), width)
    assert answer.text == "a\ufffd"
    assert len(answer.tokens) == 3


@pytest.mark.parametrize("width", WIDTHS)
def test_a_stop_string_of_several_bytes_a_character_is_found(width: int) -> None:
    answer = make(stops=["漢字"])
    feed(answer, byte_tokens("x漢漢字y"), width)
    assert answer.text == "x漢"
    assert answer.tokens == byte_tokens("x漢漢字")


def test_a_stop_string_completed_by_the_last_token_is_a_stop() -> None:
    answer = make(max_tokens=3, stops=["END"])
    answer.keep(byte_tokens("END"))
    assert answer.finish_reason == "stop"
    assert answer.text == ""


def test_an_interrupted_answer_shows_what_was_held_back() -> None:
    answer = make(stops=["END"])
    answer.keep([*byte_tokens("abEN"), 0xE6])
    answer.interrupt()
    assert answer.finish_reason == "interrupted"
    assert answer.text == "abEN\ufffd"


def test_an_ended_answer_is_not_interrupted() -> None:
    answer = make()
    answer.keep([END_IDS[0]])
    answer.interrupt()
    assert answer.finish_reason == "stop"


def test_without_a_tokenizer_tokens_are_kept_and_no_text_is_shown() -> None:
    answer = make(text=False, max_tokens=3)
    assert answer.keep([300, 301, 302, 303]) == 3
    assert (answer.text, answer.new_text(), answer.finish_reason) == ("", "", "length")
