"""What the events of a stream say is what the whole message says, however the model's tokens come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx.runtime.scheduler.job import Prefill
from mtplx.runtime.server.answering import Delta
from mtplx.runtime.server.anthropic.message import INVALID_JSON, read_input
from mtplx.runtime.server.anthropic.stream import Head, message_events
from mtplx.runtime.server.output.parser import make_parser
from tests.support.scripted import byte_tokens
from tests.support.scripted_owner import in_bursts
from tests.unit.server.anthropic.playing import ADD, WEATHER, asking
from tests.unit.server.outputs import collect
from tests.unit.server.playing import ANSWERS, Playing

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from mtplx.runtime.server.served import ServedModel


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, whose names are those in their data."""
    events = []
    for chunk in text.split("\n\n"):
        if chunk:
            name, data = chunk.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            events.append(event)
    return events


def content_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that a client has at the end; also checks that blocks open and close in turn."""
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert event["index"] == len(blocks)
                is_open = True
                blocks.append(event["content_block"] | {"json": ""})
            case "content_block_delta":
                assert is_open
                assert event["index"] == len(blocks) - 1
                delta = event["delta"]
                key = {"input_json_delta": "json"}.get(delta["type"]) or delta["type"][:-6]
                blocks[-1][key] += delta.get("partial_json", delta.get(key))
            case "content_block_stop":
                assert is_open
                is_open = False
    assert not is_open
    for block in blocks:
        joined = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(joined)
    return blocks


def without_ids(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in block.items() if key != "id"} for block in blocks]


@settings(max_examples=40)
@given(
    answer=st.sampled_from(ANSWERS),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    thinks=st.booleans(),
)
def test_a_stream_joins_to_the_whole_message_for_every_split(
    http: TestClient, playing: Playing, answer: str, cuts: list[int], thinks: bool
) -> None:
    ids = byte_tokens(answer)
    places = sorted({cut % (len(ids) + 1) for cut in cuts})
    body = asking(tools=[WEATHER, ADD], thinking=None if thinks else {"type": "disabled"})

    playing.bursts = [answer]
    whole = http.post("/v1/messages", json=body).json()
    playing.bursts = [ids[a:b] for a, b in zip([0, *places], [*places, len(ids)], strict=True)]
    events = events_of(http.post("/v1/messages", json=body | {"stream": True}).text)

    assert without_ids(content_of(events)) == without_ids(whole["content"])
    assert [event["type"] for event in events[:2]] == ["message_start", "ping"]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    assert events[-2]["delta"] == {key: whole[key] for key in ("stop_reason", "stop_sequence")}
    assert events[-2]["usage"] == whole["usage"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_blocks_hold_what_the_parser_finds(
    http: TestClient, playing: Playing, model: ServedModel, answer: str
) -> None:
    tools = [{"type": "function", "function": {"name": tool["name"]}} for tool in (WEATHER, ADD)]
    seen = collect(make_parser(model, tools, "auto", starts_in_reasoning=True), [answer])

    playing.bursts = in_bursts(answer, 5)
    body = asking(tools=[WEATHER, ADD], thinking=None)
    content = http.post("/v1/messages", json=body).json()["content"]

    def joined(kind: str) -> str:
        return "".join(block[kind] for block in content if block["type"] == kind)

    assert joined("text") == seen.text
    assert joined("thinking") == seen.reasoning
    calls = [block for block in content if block["type"] == "tool_use"]
    assert [(block["name"], block["input"]) for block in calls] == [
        (call.name, call.values) for call in seen.calls
    ]


@pytest.mark.parametrize("width", range(1, 9))
def test_stop_sequences_are_named_and_not_shown_at_every_burst_boundary(
    http: TestClient, playing: Playing, width: int
) -> None:
    playing.bursts = in_bursts("one é STOP two", width)
    body = asking(stop_sequences=["nothing", "STOP"], stream=True)
    events = events_of(http.post("/v1/messages", json=body).text)
    assert content_of(events) == [{"type": "text", "text": "one é "}]
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "STOP"}


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_small_budgets_end_with_max_tokens(http: TestClient, playing: Playing, budget: int) -> None:
    playing.bursts = [byte_tokens("abcdef")]
    message = http.post("/v1/messages", json=asking(max_tokens=budget)).json()
    assert message["content"] == [{"type": "text", "text": "abcdef"[:budget]}]
    assert message["stop_reason"] == "max_tokens"
    assert message["usage"]["output_tokens"] == budget


def test_thinking_alone_is_one_block(http: TestClient, playing: Playing) -> None:
    playing.bursts = ["a b c d e f"]
    message = http.post("/v1/messages", json=asking(thinking=None, max_tokens=5)).json()
    assert [block["type"] for block in message["content"]] == ["thinking"]
    assert message["content"][0]["thinking"] == "a b c"
    assert message["stop_reason"] == "max_tokens"


def test_no_answer_is_no_block(http: TestClient, playing: Playing) -> None:
    playing.bursts = []
    events = events_of(http.post("/v1/messages", json=asking(stream=True)).text)
    assert [event["type"] for event in events] == [
        "message_start",
        "ping",
        "message_delta",
        "message_stop",
    ]
    assert events[2]["delta"]["stop_reason"] == "end_turn"
    assert http.post("/v1/messages", json=asking()).json()["content"] == []


def test_a_call_that_breaks_off_keeps_what_had_come(http: TestClient, playing: Playing) -> None:
    begun = '<tool_call>\n{"name": "add", "arguments": {"a": 12, "b": [3, "fo'
    playing.bursts = [begun]
    body = asking(tools=[ADD], max_tokens=len(begun))
    message = http.post("/v1/messages", json=body).json()
    assert message["stop_reason"] == "max_tokens"
    assert [block["type"] for block in message["content"]] == ["tool_use"]
    assert message["content"][0]["input"] == {"a": 12, "b": [3]}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", {}),
        ("{}", {}),
        ('{"a": {"b": [1, 2.5, null]}}', {"a": {"b": [1, 2.5, None]}}),
        ('{"a": 1, "b": "half', {"a": 1}),
        ("[1]", {INVALID_JSON: "[1]"}),
        ('{"a" 1}', {INVALID_JSON: '{"a" 1}'}),
        ('{"a": NaN}', {INVALID_JSON: '{"a": NaN}'}),
        ('{"a": "\\ud800"}', {INVALID_JSON: '{"a": "\\ud800"}'}),
    ],
)
def test_arguments_are_an_object_or_shown_as_they_are(text: str, read: dict[str, Any]) -> None:
    assert read_input(text) == read


def test_a_failure_in_mid_stream_is_the_last_event(http: TestClient, playing: Playing) -> None:
    playing.bursts = ["half an ans", ValueError("broken")]
    response = http.post("/v1/messages", json=asking(stream=True))
    events = events_of(response.text)
    assert response.status_code == 200
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["type"] == "api_error"
    assert "broken" not in response.text


def test_the_first_event_tells_how_much_of_the_prompt_was_kept() -> None:
    async def deltas() -> AsyncGenerator[Delta]:
        yield Delta(progress=Prefill(1, 3))
        yield Delta(progress=Prefill(3, 3))

    async def first() -> dict[str, Any]:
        head = Head(id="m", model="x", prompt_tokens=10, max_tokens=5)
        async with aclosing(message_events(head, deltas())) as events:
            return await anext(events)

    usage = asyncio.run(first())["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (3, 7)
