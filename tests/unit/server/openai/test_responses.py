"""Responses with the official client: the events in their order, and the response that they make."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from mtplx.runtime.server.sealing import seal
from tests.support.scripted import byte_tokens
from tests.support.scripted_owner import in_bursts
from tests.unit.server.openai.playing import ADD, WEATHER
from tests.unit.server.playing import ANSWERS, CALL, NAME, Playing

if TYPE_CHECKING:
    from starlette.testclient import TestClient

PATH = "/v1/responses"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
LOGPROBS = ["message.output_text.logprobs"]
TOOLS = [{"type": "function", "strict": None, **tool["function"]} for tool in (WEATHER, ADD)]
THOUGHTFUL = f"Which city?</think>\n\nLet me look.{CALL}"


def asking(given: Any = "hi", **keys: Any) -> dict[str, Any]:
    """A request, answered without thinking unless `keys` say otherwise; None takes a key out."""
    plain: dict[str, Any] = {
        "model": NAME,
        "input": given,
        "max_output_tokens": 300,
        "reasoning": {"effort": "none"},
    }
    return {key: value for key, value in (plain | keys).items() if value is not None}


def events_of(http: TestClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream, each of which the client's own types take; their names are those in their data."""
    answer = http.post(PATH, json=body | {"stream": True})
    assert answer.status_code == 200, answer.text
    events = []
    for chunk in answer.text.split("\n\n"):
        if chunk:
            name, data = chunk.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            EVENT.validate_python(event, strict=True)
            events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def rebuilt(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output as the deltas tell it, checking that items open, fill and close in turn."""
    output: list[dict[str, Any]] = []
    expected = ["response.created", "response.in_progress"]
    assert [event["type"] for event in events[:2]] == expected
    state = "closed"
    text = ""
    logprobs: list[Any] = []
    for event in events[2:-1]:
        kind = event["type"].removeprefix("response.")
        assert event["output_index"] == len(output)
        match kind:
            case "output_item.added":
                assert state == "closed"
                item = event["item"]
                assert item["status"] == "in_progress"
                state, text, logprobs = "added", "", []
            case "content_part.added":
                assert (state, event["item_id"], event["part"]["text"]) == ("added", item["id"], "")
                state = "part"
            case "output_text.delta" | "reasoning_text.delta" | "function_call_arguments.delta":
                assert state == ("added" if "function" in kind else "part")
                assert event["item_id"] == item["id"]
                text += event["delta"]
                logprobs += event.get("logprobs", [])
            case "output_text.done" | "reasoning_text.done":
                assert (state, event["text"]) == ("part", text)
                assert event.get("logprobs", []) == logprobs
                state = "text done"
            case "content_part.done":
                assert (state, event["part"]["text"]) == ("text done", text)
                state = "done"
            case "function_call_arguments.done":
                assert (state, event["arguments"]) == ("added", text)
                state = "done"
            case "output_item.done":
                assert (state, event["item"]["id"]) == ("done", item["id"])
                output.append(event["item"])
                state = "closed"
            case _:
                raise AssertionError(kind)
    assert state == "closed"
    return output


def plain(output: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What the items hold, without ids."""
    return [
        (item["type"], item["arguments"] if "arguments" in item else item["content"][0]["text"])
        for item in output
    ]


@settings(max_examples=60)
@given(
    answer=st.sampled_from(ANSWERS),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    thinks=st.booleans(),
    has_logprobs=st.booleans(),
    budget=st.sampled_from([1, 2, 3, 300]),
)
def test_the_events_make_the_response_for_every_split(
    http: TestClient,
    playing: Playing,
    answer: str,
    cuts: list[int],
    thinks: bool,
    has_logprobs: bool,
    budget: int,
) -> None:
    ids = byte_tokens(answer)
    places = sorted({cut % (len(ids) + 1) for cut in cuts})
    body = asking(
        tools=TOOLS,
        max_output_tokens=budget,
        reasoning=None if thinks else {"effort": "none"},
        include=LOGPROBS if has_logprobs else None,
    )
    playing.bursts = [answer]
    whole = http.post(PATH, json=body).json()
    Response.model_validate(whole, strict=True)
    playing.bursts = [ids[a:b] for a, b in zip([0, *places], [*places, len(ids)], strict=True)]
    events = events_of(http, body)

    last = events[-1]
    output = rebuilt(events)
    assert last["response"]["output"] == output
    assert plain(output) == plain(whole["output"])
    assert last["response"]["status"] == whole["status"] == last["type"].removeprefix("response.")
    if whole["status"] == "incomplete":
        assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
        assert {item["status"] for item in output[-1:]} <= {"incomplete"}
    assert {item["status"] for item in output[:-1]} <= {"completed"}
    for item in output:
        if has_logprobs and item["type"] == "message" and item is output[0]:
            _check_logprobs(item)


def _check_logprobs(item: dict[str, Any]) -> None:
    """The tokens of a message are its text; at its end some may be held back, of which no text came."""
    part = item["content"][0]
    told = b"".join(bytes(one["bytes"]) for one in part["logprobs"])
    assert part["text"].encode().startswith(told)
    assert len(part["text"].encode()) - len(told) <= 4 or "\ufffd" in part["text"]


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streams(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def answer(client: OpenAI, *, streams: bool, **keys: Any) -> Response:
    """The response, made whole by the client or by the server."""
    body = asking(**keys)
    if not streams:
        response: Response = client.responses.create(**body)
        return response
    with client.responses.stream(**body) as stream:
        return stream.get_final_response()


def test_text_with_its_usage(client: OpenAI, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts("Héllo 👩‍💻", 3)
    found = answer(client, streams=streams)
    assert found.output_text == "Héllo 👩‍💻"
    assert found.id.startswith("resp_")
    assert (found.status, found.model, found.error) == ("completed", NAME, None)
    assert found.usage is not None
    assert found.usage.input_tokens == len(playing.jobs[-1].prompt)
    assert found.usage.output_tokens == len(byte_tokens("Héllo 👩‍💻")) + 1
    assert found.usage.input_tokens_details.cached_tokens == 0


def test_reasoning_text_and_a_call(client: OpenAI, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 7)
    found = answer(client, streams=streams, tools=TOOLS, reasoning={"summary": "auto"})
    thought, said, call = found.output
    assert thought.type == "reasoning"
    assert thought.content is not None
    assert [part.text for part in thought.content] == ["Which city?"]
    assert said.type == "message"
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Pàris ☂"})
    assert call.call_id != call.id
    notes = found.to_dict()["mtplx"]["notes"]  # type: ignore[index]
    assert any("not summarised" in note for note in notes)


def test_an_answer_goes_back_as_it_came(client: OpenAI, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 6)
    sealed = ["reasoning.encrypted_content"]
    found = answer(client, streams=streams, tools=TOOLS, reasoning={}, include=sealed)
    assert found.output[0].to_dict()["encrypted_content"] == seal("Which city?")
    call_id = found.output[-1].to_dict()["call_id"]
    items: list[Any] = [{"role": "user", "content": "hi"}]
    for item in found.output:
        said = item.to_dict()
        # What the client's own stream adds for reading is not part of the public request.
        said.pop("parsed_arguments", None)
        for part in said.get("content") or []:  # type: ignore[attr-defined]
            part.pop("parsed", None)
        items.append(said)
    items.append({"type": "function_call_output", "call_id": call_id, "output": "rain"})
    playing.bursts = ["Rain.</think>It rains."]
    after = answer(client, streams=streams, given=items, tools=TOOLS, reasoning={})
    assert after.output_text == "It rains."
    prompt = bytes(token for token in playing.jobs[-1].prompt if token < 256).decode()
    assert "Let me look." in prompt
    assert '{"city": "Pàris ☂"}' in prompt
    assert prompt.index("Pàris") < prompt.rindex("rain")


@pytest.mark.parametrize("streams", [False, True])
def test_asyncio(url: str, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 3)
    body = asking(tools=TOOLS, reasoning={})

    async def ask() -> Response:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            if not streams:
                response: Response = await client.responses.create(**body)
                return response
            async with client.responses.stream(**body) as stream:
                return await stream.get_final_response()

    kinds = [item.type for item in asyncio.run(ask()).output]
    assert kinds == ["reasoning", "message", "function_call"]


def test_what_a_coding_agent_sends_is_taken(http: TestClient, playing: Playing) -> None:
    playing.bursts = ["fine"]
    said = [{"type": "input_text", "text": "<environment_context>here</environment_context>"}]
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "D"}]},
        {"type": "message", "role": "user", "content": said},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": None,
            "encrypted_content": seal("I need the shell."),
        },
        {
            "type": "function_call",
            "name": "get_weather",
            "arguments": '{"city": "Rome"}',
            "call_id": "call_1",
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny\n" * 300},
    ]
    body = {
        "model": NAME,
        "instructions": "You are a coding agent.",
        "input": items,
        "tools": [tool | {"strict": False} for tool in TOOLS],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "none", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0195-session",
        "text": {"verbosity": "medium"},
    }
    events = events_of(http, body)
    assert events[-1]["type"] == "response.completed"
    prompt = bytes(token for token in playing.jobs[-1].prompt if token < 256).decode()
    assert "You are a coding agent.\n\nD" in prompt
    assert "sunny\n" * 300 in prompt
    notes = events[-1]["response"]["mtplx"]["notes"]
    assert "instructions and the system's first messages are one message" in notes


def test_what_fails_in_mid_stream_is_a_failed_response(http: TestClient, playing: Playing) -> None:
    playing.bursts = ["begun", RuntimeError("no such kernel")]
    last = events_of(http, asking())[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert "kernel" not in last["response"]["error"]["message"]


@pytest.mark.parametrize(
    "keys",
    [
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "name": "add"}},
        {"tools": [TOOLS[0] | {"strict": True}]},
        {"text": {"format": {"type": "json_object"}}},
        {
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "sum",
                    "schema": ADD["function"]["parameters"],
                }
            }
        },
    ],
    ids=["required", "named", "strict", "json_object", "json_schema"],
)
def test_what_must_have_a_form_is_held_by_a_grammar(
    client: OpenAI, playing: Playing, keys: dict[str, Any]
) -> None:
    client.responses.create(**asking(**({"tools": TOOLS} | keys)))
    assert playing.jobs[-1].options.constraint is not None


def test_an_unknown_model_is_404(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=NAME):
        client.responses.create(**asking(model="gpt-5"))
