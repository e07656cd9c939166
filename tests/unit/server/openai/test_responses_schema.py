"""Every key of a response's request works, is without effect, or is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openai.types import responses, shared_params
from openai.types.responses import response_create_params, response_input_item_param
from pydantic import BaseModel

from mtplx.runtime.server.openai import response_items as items
from mtplx.runtime.server.openai import response_schema as schema
from mtplx.runtime.server.openai.response_input import converse
from mtplx.runtime.server.sealing import seal
from tests.unit.server.openai.test_responses import PATH, TOOLS, asking
from tests.unit.server.playing import NAME, Playing
from tests.unit.server.schemas import fields_of, keys_of

if TYPE_CHECKING:
    from starlette.testclient import TestClient

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "responses.md"
USER = {"role": "user", "content": "x"}
FORM = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}

#: A value of each key, and whether it is taken. What comes with it is in BESIDE.
SAMPLES: dict[str, list[tuple[Any, bool]]] = {
    "model": [(NAME, True), ("other-model", False)],
    "input": [("hi", True), ([USER], True), ([], False), ([{"type": "computer_call"}], False)],
    "instructions": [("be brief", True), (3, False)],
    "stream": [(True, True), ("yes", False)],
    "stream_options": [
        ({"include_obfuscation": False}, True),
        ({"include_obfuscation": True}, False),
    ],
    "max_output_tokens": [(5, True), (0, False)],
    "include": [
        (["reasoning.encrypted_content"], True),
        ([], True),
        (["file_search_call.results"], False),
    ],
    "top_logprobs": [(0, True), (20, True), (21, False)],
    "tools": [(TOOLS, True), ([{"type": "web_search"}], False), ([{"type": "custom"}], False)],
    "tool_choice": [("auto", True), ("none", True), ({"type": "allowed_tools"}, False)],
    "parallel_tool_calls": [(True, True), (False, True), ("no", False)],
    "max_tool_calls": [(3, True), (0, False)],
    "reasoning": [
        ({"effort": "low", "summary": "auto"}, True),
        ({}, True),
        ({"effort": "huge"}, False),
        ({"mode": "pro"}, False),
        ({"other": 1}, False),
    ],
    "text": [({"format": FORM}, True), ({"format": {"type": "text"}}, True), ({"a": 1}, False)],
    "truncation": [("disabled", True), ("auto", False)],
    "temperature": [(0, True), (2, True), (2.1, False)],
    "top_p": [(1, True), (0, False)],
    "background": [(False, True), (True, False)],
    "store": [(False, True), (True, False)],
    "user": [("u", True)],
    "metadata": [({"a": "b"}, True), ({"a": 1}, False)],
    "safety_identifier": [("s", True)],
    "service_tier": [("auto", True), ("flex", False)],
    "prompt_cache_key": [("k", True)],
    "prompt_cache_retention": [("in_memory", True), ("24h", False)],
    "access_programs": [({}, False)],
    "background_options": [({}, False)],
    "context_management": [([{"type": "compaction"}], False)],
    "conversation": [("conv_1", False)],
    "image": [({}, False)],
    "moderation": [({}, False)],
    "previous_response_id": [("resp_1", False)],
    "prompt": [({"id": "p"}, False)],
    "prompt_cache_options": [({}, False)],
    # Beside the public schema:
    "seed": [(7, True), (-1, False)],
    "presence_penalty": [(1, True), (3, False)],
    "frequency_penalty": [(1, True), (3, False)],
    "top_k": [(40, True), (-1, False)],
    "min_p": [(0.1, True), (2, False)],
    "repetition_penalty": [(1.1, True), (0, False)],
    "depth": [(2, True), (99, False)],
    "acceptance": [("block", True), ("other", False)],
    "generation_mode": [("ar", True), ("fast", False)],
}
OURS = {
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "top_k",
    "min_p",
    "repetition_penalty",
    "depth",
    "acceptance",
    "generation_mode",
}
BESIDE: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "top_logprobs": {"include": ["message.output_text.logprobs"]},
}


CREATE = keys_of(
    response_create_params.ResponseCreateParamsNonStreaming,
    response_create_params.ResponseCreateParamsStreaming,
)


def test_no_key_of_the_client_is_forgotten() -> None:
    assert set(SAMPLES) == CREATE | OURS
    assert fields_of(schema.ResponseRequest) == CREATE | OURS


@pytest.mark.parametrize("key", sorted(CREATE | OURS))
def test_every_key_is_documented(key: str) -> None:
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if "|" in line]
    assert any(f"`{key}`" in row.split("|")[1] for row in rows)


@pytest.mark.parametrize("key", SAMPLES)
def test_each_key_works_or_is_refused_by_its_name(
    http: TestClient, playing: Playing, key: str
) -> None:
    for value, is_taken in SAMPLES[key]:
        playing.jobs.clear()
        response = http.post(PATH, json={**asking(**BESIDE.get(key, {})), key: value})
        if is_taken:
            assert response.status_code == 200, (value, response.text)
            continue
        error = response.json()["error"]
        assert response.status_code == (404 if value == "other-model" else 400), (value, error)
        if value != "other-model":
            assert key in error["message"]
            assert error["param"].split(".")[0].split("[")[0] == key
        assert playing.jobs == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (items.FunctionCall, keys_of(responses.ResponseFunctionToolCallParam)),
        (items.FunctionCallOutput, keys_of(response_input_item_param.FunctionCallOutput)),
        (items.Reasoning, keys_of(responses.ResponseReasoningItemParam)),
        (
            items.Message,
            keys_of(
                responses.EasyInputMessageParam,
                response_input_item_param.Message,
                responses.ResponseOutputMessageParam,
            ),
        ),
        (items.InputText, keys_of(responses.ResponseInputTextParam)),
        (items.OutputText, keys_of(responses.ResponseOutputTextParam)),
        (schema.FunctionTool, keys_of(responses.FunctionToolParam)),
        (schema.ReasoningOptions, keys_of(shared_params.Reasoning)),
        (schema.TextOptions, keys_of(responses.ResponseTextConfigParam)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_parts_of_a_request_have_the_clients_keys(ours: type[BaseModel], theirs: set[str]) -> None:
    assert fields_of(ours) == theirs


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ([USER | {"foo": 1}], "input[0].foo"),
        ([{"role": "tool", "content": "x"}], "input[0]"),
        ([USER, {"type": "item_reference", "id": "msg_1"}], "input[1]"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0]"),
        (
            [{"type": "function_call_output", "call_id": "c", "output": "x"}],
            "input[0].call_id",
        ),
        (
            [{"type": "reasoning", "summary": [], "encrypted_content": "mtplx-thinking:!"}],
            "input[0].encrypted_content",
        ),
    ],
)
def test_items_that_cannot_be_read_are_refused_by_their_place(
    http: TestClient, playing: Playing, given: Any, key: str
) -> None:
    response = http.post(PATH, json=asking(given))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == key
    assert error["message"].startswith(key)
    assert playing.jobs == []


def test_what_the_template_refuses_is_named_by_the_item(http: TestClient) -> None:
    late = {"role": "system", "content": "late"}
    response = http.post(PATH, json=asking([USER, late]))
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["param"].startswith("input[1]")
    assert "messages[" not in error["message"]


def read(given: list[dict[str, Any]], instructions: str | None = None) -> Any:
    wanted = schema.ResponseRequest.model_validate({"model": NAME, "input": given})
    return converse(instructions, wanted.input)


def test_thought_text_and_calls_are_one_message() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    said = read(
        [
            USER,
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "R"}],
            },
            {"role": "assistant", "content": [{"type": "output_text", "text": "T"}]},
            call,
            call | {"call_id": "c2"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "2"}],
            },
            {"type": "reasoning", "summary": [], "encrypted_content": seal("hidden")},
            call | {"call_id": "c3"},
        ]
    ).said
    assert [message["role"] for message in said] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert (said[1]["reasoning_content"], said[1]["content"]) == ("R", "T")
    assert [one["id"] for one in said[1]["tool_calls"]] == ["c1", "c2"]
    assert [(one["name"], one["content"]) for one in said[2:4]] == [("f", "1"), ("f", "2")]
    assert said[4]["reasoning_content"] == "hidden"


def test_a_second_text_is_a_second_message() -> None:
    said = read([{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}])
    assert [message["content"] for message in said.said] == ["one", "two"]


def test_what_is_not_read_is_told() -> None:
    summary = [{"type": "summary_text", "text": "s"}]
    assert read([USER, {"type": "reasoning", "summary": summary}]).notes == [
        "summaries of reasoning are not read"
    ]
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    assert read([USER, foreign]).notes == ["reasoning that another server encrypted is not read"]
