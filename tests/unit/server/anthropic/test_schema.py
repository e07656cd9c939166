"""Every key that the official client knows works, is without effect, or is refused by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pytest
from anthropic import types
from anthropic.types import beta, message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count
from anthropic.types.beta import message_create_params as beta_create
from pydantic import BaseModel

from mtplx.runtime.server.anthropic import blocks, options, schema, schema_messages
from tests.unit.server.anthropic.playing import WEATHER, asking
from tests.unit.server.playing import NAME, Playing
from tests.unit.server.schemas import fields_of, keys_of

if TYPE_CHECKING:
    from starlette.testclient import TestClient

#: A value of each key, and whether it is taken.
SAMPLES: dict[str, list[tuple[Any, bool]]] = {
    "model": [(NAME, True), ("other-model", False), (None, False)],
    "max_tokens": [(5, True), (0, False), ("5", False), (1.5, False), (True, False)],
    "messages": [(asking()["messages"], True), ([], False), ("hi", False)],
    "system": [("x", True), ([{"type": "text", "text": "x"}], True), (3, False)],
    "stream": [(True, True), (False, True), ("yes", False)],
    "stop_sequences": [(["x"], True), ([], True), ([""], False), ("x", False)],
    "temperature": [(0, True), (1.0, True), (1.1, False), (-1, False), ("1", False)],
    "top_p": [(1, True), (0.5, True), (0, False), (1.5, False)],
    "top_k": [(0, True), (40, True), (-1, False), (1.5, False)],
    "metadata": [({"user_id": "u"}, True), ({}, True), ({"name": "n"}, False)],
    "service_tier": [("auto", True), ("standard_only", True), ("priority", False)],
    "tools": [([WEATHER], True), ([], True), ([{"name": "x"}], False)],
    "tool_choice": [({"type": "auto"}, True), ({"type": "none"}, True), ("auto", False)],
    "thinking": [
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive", "display": "summarized"}, True),
        ({"type": "disabled"}, True),
        ({"type": "between_tools"}, False),
        ({"type": "enabled"}, False),
    ],
    "output_config": [
        ({"effort": "low"}, True),
        ({"format": None}, True),
        ({"effort": "huge"}, False),
        ({"task_budget": {"type": "tokens", "total": 9}}, False),
        ({"format": {"type": "text"}}, False),
    ],
    "cache_control": [
        ({"type": "ephemeral", "ttl": "1h", "scope": "global"}, True),
        ({"type": "other"}, False),
    ],
    "context_management": [
        ({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, True),
        ({"edits": []}, True),
        ({"edits": [{"type": "clear_tool_uses_20250919"}]}, False),
        ({"edits": [{"type": "clear_thinking_20251015"}]}, True),
        ({"edits": [{"type": "clear_thinking_20251015", "keep": "none"}]}, False),
    ],
    "speed": [("standard", True), ("fast", False)],
    "mcp_servers": [([], True), ([{"type": "url", "url": "x", "name": "n"}], False)],
    "fallbacks": [([], True), ([{"model": "x"}], False)],
    "container": [(None, True), ("c", False)],
    "diagnostics": [(None, True), ({"previous_message_id": None}, False)],
    "inference_geo": [(None, True), ("eu", False)],
    "user_profile_id": [("u", False)],
    "workspace_id": [("w", False)],
    "billing_policy": [({}, False)],
    "compaction": [({}, False)],
    "fallback_credit_token": [("t", False)],
    "thread": [({}, False)],
    # Beside the public schema:
    "seed": [(7, True), (-1, False), ("7", False)],
    "depth": [(2, True), ("auto", True), (99, False), ("deep", False)],
    "acceptance": [("coupled", True), ("other", False)],
    "generation_mode": [("ar", True), ("mtp", True), ("fast", False)],
}
# The client's parameters for sampling are extra ones by now; `betas` is a header.
BESIDE = {"temperature", "top_p", "top_k", "seed", "depth", "acceptance", "generation_mode"}


CREATE = (
    keys_of(message_create_params.MessageCreateParamsNonStreaming)
    | keys_of(message_create_params.MessageCreateParamsStreaming)
    | keys_of(beta_create.MessageCreateParamsNonStreaming)
) - {"betas"}
COUNT = (
    keys_of(message_count_tokens_params.MessageCountTokensParams)
    | keys_of(beta_count.MessageCountTokensParams)
) - {"betas"}


def test_no_key_of_the_client_is_forgotten() -> None:
    assert set(SAMPLES) == CREATE | BESIDE
    assert fields_of(schema.MessagesRequest) == CREATE | BESIDE
    assert fields_of(schema.CountTokensRequest) == COUNT


@pytest.mark.parametrize("key", SAMPLES)
def test_each_key_works_or_is_refused_by_its_name(
    http: TestClient, playing: Playing, key: str
) -> None:
    for value, is_taken in SAMPLES[key]:
        response = http.post("/v1/messages", json=asking() | {key: value})
        if is_taken:
            assert response.status_code == 200, response.text
        elif (key, value) == ("model", "other-model"):
            assert response.status_code == 404
        else:
            assert response.status_code == 400, (value, response.text)
            assert response.json()["error"]["message"].startswith(key)
    assert len(playing.jobs) == sum(is_taken for _, is_taken in SAMPLES[key])


@pytest.mark.parametrize("key", sorted(COUNT))
def test_counting_takes_the_same_values(http: TestClient, key: str) -> None:
    plain = {name: value for name, value in asking().items() if name != "max_tokens"}
    for value, is_taken in SAMPLES[key]:
        response = http.post("/v1/messages/count_tokens", json=plain | {key: value})
        assert (response.status_code == 200) == is_taken, (value, response.text)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_unknown_keys_are_refused_at_every_depth(http: TestClient, path: str) -> None:
    text = {"type": "text", "text": "x"}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"foo": 1}, "foo"),
        ({"messages": [{"role": "user", "content": "x", "name": "n"}]}, "messages[0].name"),
        (
            {"messages": [{"role": "user", "content": [text | {"foo": 1}]}]},
            "messages[0].content[0].foo",
        ),
        ({"tools": [WEATHER | {"foo": 1}]}, "tools[0].foo"),
        ({"system": [text, text | {"foo": 1}]}, "system[1].foo"),
        ({"tool_choice": {"type": "auto", "foo": 1}}, "tool_choice.foo"),
        ({"thinking": {"type": "adaptive", "foo": 1}}, "thinking.foo"),
    ]
    for change, key in changes:
        body = asking() | change
        if path.endswith("count_tokens"):
            del body["max_tokens"]
        response = http.post(path, json=body)
        assert response.status_code == 400
        message = response.json()["error"]["message"]
        assert message == f"{key} is not a key that this server knows."


@pytest.mark.parametrize(
    ("ours", "name"),
    [
        (blocks.TextBlock, "TextBlockParam"),
        (blocks.ThinkingBlock, "ThinkingBlockParam"),
        (blocks.ToolUseBlock, "ToolUseBlockParam"),
        (blocks.ToolResultBlock, "ToolResultBlockParam"),
        (blocks.CacheControl, "CacheControlEphemeralParam"),
        (options.Tool, "ToolParam"),
        (options.ChoiceAuto, "ToolChoiceAutoParam"),
        (options.ChoiceAny, "ToolChoiceAnyParam"),
        (options.ChoiceTool, "ToolChoiceToolParam"),
        (options.ChoiceNone, "ToolChoiceNoneParam"),
        (options.ThinkingEnabled, "ThinkingConfigEnabledParam"),
        (options.ThinkingAdaptive, "ThinkingConfigAdaptiveParam"),
        (options.ThinkingDisabled, "ThinkingConfigDisabledParam"),
        (options.OutputConfig, "OutputConfigParam"),
        (options.JsonFormat, "JSONOutputFormatParam"),
        (schema.Metadata, "MetadataParam"),
        (schema_messages.UserMessage, "UserMessageParam"),
        (schema_messages.AssistantMessage, "AssistantMessageParam"),
        (schema_messages.SystemMessage, "SystemMessageParam"),
    ],
)
def test_parts_of_a_request_have_the_clients_keys(ours: type[BaseModel], name: str) -> None:
    theirs = keys_of(getattr(types, name)) | keys_of(getattr(beta, f"Beta{name}"))
    extra = {"scope"} if ours is blocks.CacheControl else set()
    assert fields_of(ours) == theirs | extra


def kinds_of(union: Any) -> set[str]:
    """The values of `type` in a union of objects."""
    kinds = [get_type_hints(member).get("type") for member in get_args(union)]
    return {found for kind in kinds if (found := _literal(kind))}


def _literal(kind: Any) -> str | None:
    """The first text in a type."""
    if isinstance(kind, str):
        return kind
    return next((found for found in map(_literal, get_args(kind)) if found), None)


TAKEN = {"user": {"text", "tool_result"}, "assistant": {"text", "thinking", "tool_use"}}


@pytest.mark.parametrize("role", TAKEN)
def test_blocks_of_every_other_kind_are_refused_with_their_place(
    http: TestClient, role: str
) -> None:
    kinds = kinds_of(types.ContentBlockParam)
    assert {"text", "image", "document", "redacted_thinking", "server_tool_use"} <= kinds
    for kind in kinds - TAKEN[role]:
        content = [{"type": "text", "text": "x"}, {"type": kind}]
        body = asking(messages=[{"role": role, "content": content}])
        response = http.post("/v1/messages", json=body)
        assert response.status_code == 400
        message = response.json()["error"]["message"]
        assert message.startswith("messages[0].content[1] is ")
        assert "input should" not in message


def test_results_take_text_alone(http: TestClient) -> None:
    for kind in ("image", "document", "search_result", "tool_reference", "browser_state"):
        result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": kind}]}
        body = asking(messages=[{"role": "user", "content": [result]}])
        message = http.post("/v1/messages", json=body).json()["error"]["message"]
        assert message.startswith("messages[0].content[0].content[0] is ")


def test_tools_of_other_kinds_are_refused(http: TestClient) -> None:
    kinds = kinds_of(types.ToolUnionParam)
    assert {"bash_20250124", "web_search_20250305"} <= kinds
    for kind in kinds - {"custom"}:
        body = asking(tools=[WEATHER, {"type": kind, "name": "x"}])
        response = http.post("/v1/messages", json=body)
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith(f"tools[1] is of type {kind!r}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("strict", "yes"),
        ("defer_loading", True),
        ("allowed_callers", ["code_execution_20250825"]),
        ("input_examples", [{"city": "Rome"}]),
        ("input_schema", "x"),
        ("type", "other"),
    ],
)
def test_what_tools_cannot_have_is_refused(http: TestClient, key: str, value: Any) -> None:
    response = http.post("/v1/messages", json=asking(tools=[WEATHER | {key: value}]))
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("tools[0]")


def test_what_has_no_effect_on_tools_is_taken(http: TestClient, playing: Playing) -> None:
    more = {
        "type": "custom",
        "cache_control": {"type": "ephemeral"},
        "eager_input_streaming": True,
        "defer_loading": False,
        "allowed_callers": ["direct"],
        "input_examples": [],
    }
    assert http.post("/v1/messages", json=asking(tools=[WEATHER | more])).status_code == 200
    assert http.post("/v1/messages", json=asking(tools=[WEATHER])).status_code == 200
    assert playing.jobs[0].prompt == playing.jobs[1].prompt


def test_the_schema_can_be_written_down() -> None:
    document = schema.MessagesRequest.model_json_schema()
    assert set(document["properties"]) == CREATE | BESIDE
    assert document["additionalProperties"] is False
