"""Reasoning is split from the answer by the model's own markers, at the beginning of a text only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.runtime.server.output.parser import OutputParser
from mtplx.runtime.server.output.pieces import Consumed, Reasoning, Text
from mtplx.runtime.server.output.reasoning import ReasoningMarkers, ReasoningSplitter
from tests.unit.server.outputs import Seen, collect, split

MARKERS = ReasoningMarkers("<think>", "</think>")


def seen(text: str, *, has_begun: bool = False, shows_reasoning: bool = True) -> Seen:
    splitter = ReasoningSplitter(MARKERS, has_begun=has_begun)
    return collect(OutputParser(splitter, shows_reasoning=shows_reasoning), [text])


def test_a_leading_block_is_reasoning_and_the_markers_are_shown_nowhere() -> None:
    got = seen("\n<think>a < b</think>\n\nYes.")
    assert (got.reasoning, got.text) == ("a < b", "\n\nYes.")
    assert got.consumed == "\n<think></think>"


def test_a_prompt_that_opened_the_block_begins_inside_it() -> None:
    got = seen("a</think>b", has_begun=True)
    assert (got.reasoning, got.text) == ("a", "b")


def test_a_budget_that_ends_while_thinking_leaves_reasoning_alone() -> None:
    got = seen("<think>still </thi")
    assert (got.reasoning, got.text) == ("still </thi", "")


@pytest.mark.parametrize(
    "text",
    [
        "`<think>` opens a block.",
        "Yes. <think>no</think>",
        "A stray </think> stays.",
        "<thin",
        "  ",
        "",
    ],
)
def test_markers_elsewhere_are_text(text: str) -> None:
    assert seen(text) == Seen(text, "", (), "", 0, False)


def test_a_closing_marker_in_a_code_span_does_not_close() -> None:
    got = seen("The tag `</think>` ends it.</think>Done", has_begun=True)
    assert (got.reasoning, got.text) == ("The tag `</think>` ends it.", "Done")


def test_a_closing_marker_behind_a_backtick_at_the_end_closes() -> None:
    got = seen("<think>`x` and `</think>")
    assert (got.reasoning, got.text, got.consumed) == ("`x` and `", "", "<think></think>")


def test_reasoning_that_is_not_asked_for_is_text_with_its_markers() -> None:
    got = seen("<think>a</think>b", shows_reasoning=False)
    assert (got.reasoning, got.text, got.consumed) == ("", "<think>a</think>b", "")


def test_a_model_without_markers_has_no_reasoning() -> None:
    parser = OutputParser(ReasoningSplitter(None, has_begun=True))
    assert collect(parser, ["<think>a</think>"]).text == "<think>a</think>"


def test_text_is_not_held_back_longer_than_a_marker_needs() -> None:
    splitter = ReasoningSplitter(MARKERS, has_begun=True)
    assert splitter.feed("ab<") == [Reasoning("ab")]
    assert splitter.feed("c") == [Reasoning("<c")]
    assert splitter.feed("</think>x") == [Consumed("</think>"), Text("x")]
    assert splitter.feed("<") == [Text("<")]


@given(
    st.lists(
        st.sampled_from(
            ["<think>", "</think>", "`", "<", "</thi", "think>", " ", "\n", "a", "`</think>`"]
        ),
        max_size=12,
    ).map("".join),
    st.lists(st.integers(0, 200), max_size=12),
    st.booleans(),
)
def test_every_split_gives_the_same_and_every_character_once(
    text: str, cuts: list[int], has_begun: bool
) -> None:
    whole = collect(OutputParser(ReasoningSplitter(MARKERS, has_begun=has_begun)), [text])
    parts = collect(
        OutputParser(ReasoningSplitter(MARKERS, has_begun=has_begun)), split(text, cuts)
    )
    assert parts == whole
    splitter = ReasoningSplitter(MARKERS, has_begun=has_begun)
    pieces = [piece for cut in split(text, cuts) for piece in splitter.feed(cut)]
    pieces += splitter.finish()
    texts = [p.text for p in pieces if isinstance(p, Text | Reasoning | Consumed)]
    assert "".join(texts) == text
