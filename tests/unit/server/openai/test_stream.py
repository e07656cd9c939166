"""What the chunks of a stream say is what the whole answer says, however the model's tokens come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx.runtime.server.output.parser import make_parser
from tests.support.scripted import END_IDS, byte_tokens
from tests.support.scripted_owner import in_bursts
from tests.unit.server.openai.playing import ADD, WEATHER, asking, chunks_of, joined, whole
from tests.unit.server.outputs import collect
from tests.unit.server.playing import ANSWERS, CALL, SECOND_CALL, Playing

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from mtplx.runtime.server.served import ServedModel

PATH = "/v1/chat/completions"


def streamed(http: TestClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = http.post(PATH, json=body | {"stream": True})
    assert answer.status_code == 200, answer.text
    return chunks_of(answer.text)


@settings(max_examples=60)
@given(
    answer=st.sampled_from(ANSWERS),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    thinks=st.booleans(),
    stop=st.sampled_from([None, "t", "an", "er.", ["zzz", "\n"]]),
    logprobs=st.booleans(),
)
def test_a_stream_joins_to_the_whole_answer_for_every_split(
    http: TestClient,
    playing: Playing,
    answer: str,
    cuts: list[int],
    thinks: bool,
    stop: Any,
    logprobs: bool,
) -> None:
    ids = byte_tokens(answer)
    places = sorted({cut % (len(ids) + 1) for cut in cuts})
    body = asking(
        tools=[WEATHER, ADD],
        reasoning_effort=None if thinks else "none",
        stop=stop,
        logprobs=logprobs,
        top_logprobs=2 if logprobs else None,
    )
    playing.bursts = [answer]
    at_once = whole(http.post(PATH, json=body).json())
    playing.bursts = [ids[a:b] for a, b in zip([0, *places], [*places, len(ids)], strict=True)]
    in_pieces = whole(http.post(PATH, json=body).json())
    chunks = streamed(http, body | {"stream_options": {"include_usage": True}})

    assert _answers(joined(chunks)) == _answers(in_pieces) == _answers(at_once)
    assert joined(chunks)["usage"] == in_pieces["usage"]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["choices"] == []
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def _answers(seen: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices; one that a call ended may have read some tokens more in one burst than in many."""
    return [
        {key: value for key, value in choice.items() if key != "logprobs" or not choice["calls"]}
        for choice in seen["choices"]
    ]


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("answer", [f"so</think>{CALL}", f"so</think>{CALL}\n{SECOND_CALL}"])
def test_arguments_are_the_same_for_every_burst_width(
    http: TestClient, playing: Playing, model: ServedModel, answer: str, width: int
) -> None:
    parser = make_parser(model, [WEATHER, ADD], "auto", starts_in_reasoning=True)
    expected = [(call.name, call.values) for call in collect(parser, [answer]).calls]
    playing.bursts = in_bursts(answer, width)
    body = asking(tools=[WEATHER, ADD], reasoning_effort=None)
    (choice,) = joined(streamed(http, body))["choices"]
    assert [(call["name"], json.loads(call["arguments"])) for call in choice["calls"]] == expected
    assert (choice["reasoning"], choice["finish_reason"]) == ("so", "tool_calls")


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("stop", ["STOP", ["nothing", " STOP t"], ["é S"]])
def test_stop_strings_are_not_shown_at_any_token_or_burst_boundary(
    http: TestClient, playing: Playing, stop: Any, width: int
) -> None:
    text = "one é STOP two"
    shown = text.partition(stop if isinstance(stop, str) else stop[-1])[0]
    playing.bursts = in_bursts(text, width)
    (choice,) = joined(streamed(http, asking(stop=stop)))["choices"]
    assert (choice["text"], choice["finish_reason"]) == (shown, "stop")


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_characters_that_are_split_over_tokens_come_whole(
    http: TestClient, playing: Playing, width: int
) -> None:
    text = "a👩‍💻漢éz"
    playing.bursts = in_bursts(text, width)
    chunks = streamed(http, asking())
    pieces = [
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    ]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_that_never_ends_is_told_as_one(http: TestClient, playing: Playing) -> None:
    playing.bursts = [byte_tokens("ab漢")[:-1]]
    (choice,) = joined(streamed(http, asking()))["choices"]
    assert choice["text"] == "ab\ufffd"


@pytest.mark.parametrize("end", END_IDS)
def test_an_end_token_inside_a_block_ends_the_answer(
    http: TestClient, playing: Playing, end: int
) -> None:
    playing.bursts = [[*byte_tokens("over"), end, *byte_tokens(" and on")]]
    (choice,) = joined(streamed(http, asking()))["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("over", "stop")


@pytest.mark.parametrize("budget", [1, 2, 3])
@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
def test_small_budgets_end_with_length(
    http: TestClient, playing: Playing, budget: int, key: str
) -> None:
    playing.bursts = [byte_tokens("abcdef")]
    body = asking(max_tokens=None) | {key: budget, "stream_options": {"include_usage": True}}
    seen = joined(streamed(http, body))
    (choice,) = seen["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abcdef"[:budget], "length")
    assert seen["usage"]["completion_tokens"] == budget


def test_a_call_that_breaks_off_is_no_tool_call_finish(http: TestClient, playing: Playing) -> None:
    begun = '<tool_call>\n{"name": "add", "arguments": {"a": 12, "b": [3'
    playing.bursts = [begun]
    body = asking(tools=[ADD], max_tokens=len(begun))
    (choice,) = joined(streamed(http, body))["choices"]
    assert choice["finish_reason"] == "length"


def test_without_tools_nothing_is_a_call(http: TestClient, playing: Playing) -> None:
    playing.bursts = [CALL]
    offered: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "none"}
    for keys in ({}, offered):
        (choice,) = joined(streamed(http, asking(**keys)))["choices"]
        assert (choice["text"], choice["calls"], choice["finish_reason"]) == (CALL, [], "stop")


def test_a_call_in_reasoning_is_reasoning(http: TestClient, playing: Playing) -> None:
    playing.bursts = [f"I could {CALL}</think>No need."]
    body = asking(tools=[WEATHER], reasoning_effort=None)
    (choice,) = joined(streamed(http, body))["choices"]
    assert choice["calls"] == []
    assert (choice["reasoning"], choice["text"]) == (f"I could {CALL}", "No need.")


def test_what_fails_in_mid_stream_is_the_last_event(http: TestClient, playing: Playing) -> None:
    playing.bursts = ["begun", RuntimeError("no such kernel")]
    answer = http.post(PATH, json=asking(stream=True))
    *_, last, rest = answer.text.split("\n\n")
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (error["code"], rest) == ("internal", "")
    assert "kernel" not in error["message"]
