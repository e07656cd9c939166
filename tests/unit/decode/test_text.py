"""Text comes as soon as it is whole, and never in broken characters."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.runtime.decode.text import TextStream
from tests.support.scripted import ScriptedTokenizer, bursts, byte_tokens

TOKENIZER = ScriptedTokenizer()
SAMPLES = ("é", "漢", "👩‍💻", "a é漢👩‍💻 z", "plain ascii", " leading", "\n\n")
WIDTHS = (1, 2, 3, 4)
REPLACEMENT = "\ufffd"


def whole(tokens: list[int]) -> str:
    """What the tokenizer makes of all tokens at once."""
    return str(TOKENIZER.decode(tokens, clean_up_tokenization_spaces=False))


def pieces(tokens: list[int], width: int) -> list[str]:
    """One piece for each burst, the rest at the end."""
    stream = TextStream(TOKENIZER)
    shown = ["".join(stream.add(t) for t in burst) for burst in bursts(tokens, width)]
    return [*shown, stream.finish()]


@pytest.mark.parametrize("text", SAMPLES)
@pytest.mark.parametrize("width", WIDTHS)
def test_pieces_join_to_the_text_and_split_no_character(text: str, width: int) -> None:
    shown = pieces(byte_tokens(text), width)
    assert "".join(shown) == text
    assert not any(REPLACEMENT in piece for piece in shown)
    assert shown[-1] == ""


@pytest.mark.parametrize("text", ["é", "漢", "👩", "👩‍💻"])
@pytest.mark.parametrize("width", WIDTHS)
def test_an_end_inside_a_character_is_one_replacement_character(text: str, width: int) -> None:
    tokens = byte_tokens("ab" + text)
    last = len(text[-1].encode())
    for missing in range(1, last):
        cut = tokens[: len(tokens) - missing]
        shown = pieces(cut, width)
        assert "".join(shown) == "ab" + text[:-1] + REPLACEMENT
        assert "".join(shown) == whole(cut)
        assert not any(REPLACEMENT in piece for piece in shown[:-1])


@pytest.mark.parametrize("text", ["a\ufffdb", "\ufffd", "x\ufffd\ufffd", "\ufffd漢\ufffd end"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_replacement_character_of_the_model_itself_is_kept(text: str, width: int) -> None:
    assert "".join(pieces(byte_tokens(text), width)) == text


def test_ordinary_text_is_not_held_back() -> None:
    stream = TextStream(TOKENIZER)
    for character in "Hello, world 1.":
        assert stream.add(ord(character)) == character


def test_a_character_comes_with_its_last_byte() -> None:
    stream = TextStream(TOKENIZER)
    assert [stream.add(token) for token in byte_tokens("é漢")] == ["", "é", "", "", "漢"]


def test_bytes_that_are_no_text_come_as_the_tokenizer_decodes_them() -> None:
    for tokens in ([0xE6, ord("a")], [0xFF, 0xFE, ord("b")], [0xE6, 0xBC, 0xC3, 0xA9]):
        assert "".join(pieces(tokens, 1)) == whole(tokens)


@given(st.lists(st.integers(0, 255), max_size=24), st.sampled_from(WIDTHS))
def test_pieces_of_any_bytes_join_to_the_whole_decode(tokens: list[int], width: int) -> None:
    assert "".join(pieces(tokens, width)) == whole(tokens)


@given(st.text(max_size=12), st.sampled_from(WIDTHS))
def test_pieces_of_any_text_join_to_it(text: str, width: int) -> None:
    assert "".join(pieces(byte_tokens(text), width)) == text


def test_finishing_twice_gives_nothing_more() -> None:
    stream = TextStream(TOKENIZER)
    stream.add(0xE6)
    assert (stream.finish(), stream.finish()) == (REPLACEMENT, "")


class StrippingTokenizer:
    """Drops the space before the first word, as SentencePiece decoders do."""

    def decode(self, token_ids: Sequence[int], /, *, clean_up_tokenization_spaces: bool) -> str:
        assert not clean_up_tokenization_spaces
        return "".join(f" w{token}" for token in token_ids).removeprefix(" ")


def test_spaces_between_words_survive_a_tokenizer_that_strips_the_first() -> None:
    stream = TextStream(StrippingTokenizer())
    assert [stream.add(token) for token in (1, 2, 3)] == ["w1", " w2", " w3"]
