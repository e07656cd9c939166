"""Every key that the official client knows works, is without effect, or is refused by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openai.types import chat, completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from pydantic import BaseModel

from mtplx.runtime.server.openai import messages, sampling, schema, tools
from tests.unit.server.openai.playing import WEATHER, asking
from tests.unit.server.playing import NAME, Playing
from tests.unit.server.schemas import fields_of, keys_of

if TYPE_CHECKING:
    from starlette.testclient import TestClient

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "openai.md"
SCHEMA = {"name": "x", "schema": {"type": "object"}}

#: A value of each key, and whether it is taken. What comes with it is in BESIDE.
SAMPLES: dict[str, list[tuple[Any, bool]]] = {
    "model": [(NAME, True), ("other-model", False), (None, False)],
    "messages": [(asking()["messages"], True), ([], False), ("hi", False)],
    "stream": [(True, True), (False, True), ("yes", False)],
    "stream_options": [
        ({"include_usage": True}, True),
        ({"include_obfuscation": False}, True),
        ({"include_obfuscation": True}, False),
        ({"other": 1}, False),
    ],
    "n": [(1, True), (2, True), (0, False), (9, False), ("1", False)],
    "max_tokens": [(5, True), (0, False), ("5", False), (1.5, False), (True, False)],
    "max_completion_tokens": [(5, True), (0, False)],
    "stop": [("x", True), (["x"] * 4, True), ([], True), (["x"] * 5, False), ([""], False)],
    "logit_bias": [({"3": 100}, True), ({}, True), ({"3": 101}, False), ({"-1": 1}, False)],
    "logprobs": [(True, True), (False, True), (3, False)],
    "top_logprobs": [(0, True), (20, True), (21, False), (-1, False)],
    "temperature": [(0, True), (2, True), (2.1, False), (-1, False), ("1", False)],
    "top_p": [(1, True), (0.5, True), (0, False), (1.5, False)],
    "presence_penalty": [(-2, True), (2, True), (2.5, False)],
    "frequency_penalty": [(-2, True), (2, True), (-2.5, False)],
    "seed": [(7, True), (2**64 - 1, True), (-1, False), ("7", False)],
    "tools": [([WEATHER], True), ([], True), ([{"type": "web_search"}], False), ([3], False)],
    "tool_choice": [("auto", True), ("none", True), ("any", False), (3, False)],
    "parallel_tool_calls": [(True, True), (False, True), ("no", False)],
    "response_format": [
        ({"type": "text"}, True),
        ({"type": "json_object"}, True),
        ({"type": "json_schema", "json_schema": SCHEMA}, True),
        ({"type": "json_schema"}, False),
        ({"type": "json_schema", "json_schema": SCHEMA | {"name": "a b"}}, False),
        ({"type": "grammar"}, False),
        ("json", False),
    ],
    "reasoning_effort": [("none", True), ("high", True), ("huge", False)],
    "user": [("u", True), (3, False)],
    "metadata": [({"a": "b"}, True), ({"a": 1}, False)],
    "safety_identifier": [("s", True)],
    "prompt_cache_key": [("k", True)],
    "prompt_cache_retention": [("in_memory", True), ("24h", False)],
    "service_tier": [("auto", True), ("default", True), ("priority", False)],
    "store": [(False, True), (True, False)],
    "modalities": [(["text"], True), (["text", "audio"], False)],
    "verbosity": [("medium", True), ("low", False)],
    "audio": [(None, True), ({"voice": "x", "format": "wav"}, False)],
    "function_call": [(None, True), ("auto", False)],
    "functions": [(None, True), ([{"name": "x"}], False)],
    "moderation": [(None, True), ({"model": "x"}, False)],
    "prediction": [(None, True), ({"type": "content", "content": "x"}, False)],
    "prompt_cache_options": [(None, True), ({"mode": "explicit"}, False)],
    "web_search_options": [(None, True), ({}, False)],
    # Beside the public schema:
    "top_k": [(0, True), (40, True), (-1, False), (1.5, False)],
    "min_p": [(0, True), (1, True), (1.1, False)],
    "repetition_penalty": [(1.1, True), (0, False)],
    "enable_thinking": [(True, True), ("yes", False)],
    "chat_template_kwargs": [({"enable_thinking": True}, True), ({}, True), ([], False)],
    "depth": [(2, True), ("auto", True), (99, False), ("deep", False)],
    "acceptance": [("coupled", True), ("other", False)],
    "generation_mode": [("ar", True), ("mtp", True), ("fast", False)],
}
OURS = {
    "top_k",
    "min_p",
    "repetition_penalty",
    "enable_thinking",
    "chat_template_kwargs",
    "depth",
    "acceptance",
    "generation_mode",
}
#: Keys without which a value says nothing, or that it contradicts.
BESIDE: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "top_logprobs": {"logprobs": True},
    "max_completion_tokens": {"max_tokens": None},
    "enable_thinking": {"reasoning_effort": None},
    "chat_template_kwargs": {"reasoning_effort": None},
}


CHAT = keys_of(
    chat_create_params.CompletionCreateParamsNonStreaming,
    chat_create_params.CompletionCreateParamsStreaming,
)
COMPLETION = keys_of(
    completion_create_params.CompletionCreateParamsNonStreaming,
    completion_create_params.CompletionCreateParamsStreaming,
)


def test_no_key_of_the_client_is_forgotten() -> None:
    assert set(SAMPLES) == CHAT | OURS
    assert fields_of(schema.ChatRequest) == CHAT | OURS
    of_chat_alone = {"enable_thinking", "chat_template_kwargs"}
    assert fields_of(schema.CompletionRequest) == COMPLETION | OURS - of_chat_alone


@pytest.mark.parametrize("key", sorted(CHAT | COMPLETION | OURS))
def test_every_key_is_documented(key: str) -> None:
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if "|" in line]
    assert any(f"`{key}`" in row.split("|")[1] for row in rows)


@pytest.mark.parametrize("key", SAMPLES)
def test_each_key_works_or_is_refused_by_its_name(
    http: TestClient, playing: Playing, key: str
) -> None:
    for value, is_taken in SAMPLES[key]:
        body = {**asking(**BESIDE.get(key, {})), key: value}
        playing.jobs.clear()
        response = http.post("/v1/chat/completions", json=body)
        if is_taken:
            assert response.status_code == 200, (value, response.text)
            continue
        error = response.json()["error"]
        assert response.status_code == (404 if value == "other-model" else 400), (value, error)
        assert key in error["message"] or value == "other-model"
        assert value == "other-model" or error["param"].split(".")[0].split("[")[0] == key
        assert playing.jobs == []


@pytest.mark.parametrize(
    "key", sorted(COMPLETION - {"prompt", "echo", "logprobs", "suffix", "best_of"})
)
def test_completions_take_the_same_values(http: TestClient, playing: Playing, key: str) -> None:
    for value, is_taken in SAMPLES[key]:
        body = {"model": NAME, "prompt": "abc", "max_tokens": 5}
        body |= {"stream": True} if key == "stream_options" else {}
        response = http.post("/v1/completions", json=body | {key: value})
        assert (response.status_code == 200) == is_taken, (value, response.text)
    assert playing.jobs


@pytest.mark.parametrize(
    ("keys", "param"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"enable_thinking": True, "reasoning_effort": "none"}, "reasoning_effort"),
        ({"depth": 2, "generation_mode": "ar"}, "depth"),
        ({"chat_template_kwargs": {"no_such_variable": 1}}, "chat_template_kwargs"),
        ({"tool_choice": "required"}, "tools"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "other"}},
            },
            "tool_choice",
        ),
    ],
)
def test_contradictions_are_refused(
    http: TestClient, playing: Playing, keys: dict[str, Any], param: str
) -> None:
    response = http.post("/v1/chat/completions", json=asking(**keys))
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(param)
    assert playing.jobs == []


def test_unknown_keys_are_refused_at_every_depth(http: TestClient, playing: Playing) -> None:
    user = {"role": "user", "content": "x"}
    text = {"type": "text", "text": "x"}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"foo": 1}, "foo"),
        ({"messages": [user | {"foo": 1}]}, "messages[0].foo"),
        (
            {"messages": [user | {"content": [text, text | {"foo": 1}]}]},
            "messages[0].content[1].foo",
        ),
        (
            {"messages": [user, {"role": "assistant", "tool_calls": [call | {"foo": 1}]}]},
            "messages[1].tool_calls[0].foo",
        ),
        ({"tools": [WEATHER | {"foo": 1}]}, "tools[0].foo"),
        ({"stream": True, "stream_options": {"foo": 1}}, "stream_options.foo"),
        ({"response_format": {"type": "text", "foo": 1}}, "response_format.foo"),
    ]
    for change, key in changes:
        response = http.post("/v1/chat/completions", json=asking() | change)
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["param"], error["type"]) == (key, "invalid_request_error")
        assert error["message"] == f"{key} is not a key that this server knows."
    assert playing.jobs == []


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "image_url", "image_url": {"url": "data:,x"}}, "an image"),
        ({"type": "input_audio", "input_audio": {}}, "audio"),
        ({"type": "file", "file": {}}, "a file"),
        ({"text": "x"}, "no content part"),
        ("x", "no content part"),
    ],
)
def test_what_is_no_text_is_refused_by_its_place(http: TestClient, part: Any, said: str) -> None:
    messages = [{"role": "user", "content": [part]}]
    error = http.post("/v1/chat/completions", json=asking(messages=messages)).json()["error"]
    assert error["param"] == "messages[0].content[0]"
    assert said in error["message"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (messages.SystemMessage, chat.ChatCompletionSystemMessageParam),
        (messages.DeveloperMessage, chat.ChatCompletionDeveloperMessageParam),
        (messages.UserMessage, chat.ChatCompletionUserMessageParam),
        (messages.AssistantMessage, chat.ChatCompletionAssistantMessageParam),
        (messages.ToolMessage, chat.ChatCompletionToolMessageParam),
        (messages.TextPart, chat.ChatCompletionContentPartTextParam),
        (tools.FunctionTool, chat.ChatCompletionFunctionToolParam),
        (tools.NamedFunction, chat.ChatCompletionNamedToolChoiceParam),
        (sampling.StreamOptions, chat.ChatCompletionStreamOptionsParam),
    ],
)
def test_parts_of_a_request_have_the_clients_keys(ours: type[BaseModel], theirs: Any) -> None:
    # Beside them: what earlier answers of this server hold, and what clients copy from them.
    extra = {"reasoning_content", "annotations"} if ours is messages.AssistantMessage else set()
    extra |= {"name"} if ours is messages.ToolMessage else set()
    assert fields_of(ours) == keys_of(theirs) | extra


def test_every_role_of_the_client_is_known_or_refused(http: TestClient) -> None:
    for role in ("function", "critic", None):
        response = http.post(
            "/v1/chat/completions", json=asking(messages=[{"role": role, "content": "x"}])
        )
        assert response.status_code == 400
        assert re.search(r"messages\[0\] is no message", response.json()["error"]["message"])
