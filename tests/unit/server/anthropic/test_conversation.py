"""The prompt is the chat template's rendering of what was sent, and count_tokens counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.keys import ApiKeys
from mtplx.runtime.server.sealing import seal, sign, unseal
from tests.support.scripted_service import client_of, scripted_service
from tests.unit.server.anthropic.playing import ADD, WEATHER, asking
from tests.unit.server.chat_models import TEMPLATES, make_model
from tests.unit.server.playing import NAME, Playing

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.testclient import TestClient

    from mtplx.runtime.server.served import ServedModel

LONG_RESULT = "\n".join(f"{n:4d}  line {n} é" for n in range(300))

CALLED = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "One moment. "},
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}},
        {"type": "tool_use", "id": "toolu_2", "name": "add", "input": {"a": 1, "b": 2}},
    ],
}
RESULTS = {
    "role": "user",
    "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": LONG_RESULT},
        {
            "type": "tool_result",
            "tool_use_id": "toolu_2",
            "content": [{"type": "text", "text": "3"}, {"type": "text", "text": "!"}],
        },
        {"type": "text", "text": "Go "},
        {"type": "text", "text": "on.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ],
}
ASKED = {"role": "user", "content": "How is it?"}

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "plain": asking(),
    "system": asking(system="Be brief."),
    "system blocks": asking(
        system=[{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]
    ),
    "tools": asking(tools=[WEATHER, ADD], system="Be brief."),
    "results": asking(tools=[WEATHER, ADD], messages=[ASKED, CALLED, RESULTS]),
    "thinks": asking(thinking={"type": "enabled", "budget_tokens": 2000}),
    "adaptive": asking(thinking={"type": "adaptive"}),
    "two turns": asking(
        messages=[
            ASKED,
            {"role": "assistant", "content": "Fine."},
            {"role": "user", "content": "And now?"},
        ]
    ),
}

IN_OPENAI_SHAPE: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "plain": ([{"role": "user", "content": "hi"}], {"enable_thinking": False}),
    "system": (
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        {"enable_thinking": False},
    ),
    "results": (
        [
            ASKED,
            {
                "role": "assistant",
                "content": "One moment. ",
                "reasoning_content": "hm",
                "tool_calls": [
                    {
                        "id": "toolu_1",
                        "function": {"name": "get_weather", "arguments": {"city": "Rome"}},
                    },
                    {"id": "toolu_2", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}},
                ],
            },
            {"role": "tool", "tool_call_id": "toolu_1", "content": LONG_RESULT},
            {"role": "tool", "tool_call_id": "toolu_2", "content": "3!"},
            {"role": "user", "content": "Go on."},
        ],
        {"enable_thinking": False},
    ),
    "adaptive": ([{"role": "user", "content": "hi"}], {}),
}


def post(http: TestClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    message: dict[str, Any] = response.json()
    return message


def refusal(http: TestClient, body: dict[str, Any]) -> str:
    response = http.post("/v1/messages", json=body)
    assert response.status_code == 400, response.text
    error = response.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    return str(error["error"]["message"])


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_count_tokens_counts_what_messages_reads(
    http: TestClient, playing: Playing, name: str
) -> None:
    body = CONVERSATIONS[name]
    message = post(http, "/v1/messages", body)
    counted = {key: value for key, value in body.items() if key != "max_tokens"}
    read = len(playing.jobs[-1].prompt)
    assert post(http, "/v1/messages/count_tokens", counted) == {"input_tokens": read}
    assert message["usage"]["input_tokens"] == read
    assert len(playing.jobs) == 1


@pytest.mark.parametrize("name", IN_OPENAI_SHAPE)
def test_prompts_are_the_templates_rendering(
    http: TestClient, playing: Playing, model: ServedModel, name: str
) -> None:
    messages, options = IN_OPENAI_SHAPE[name]
    post(http, "/v1/messages", CONVERSATIONS[name])
    tools = [
        {
            "type": "function",
            "function": {
                **{key: value for key, value in tool.items() if key != "input_schema"},
                "parameters": tool["input_schema"],
            },
        }
        for tool in CONVERSATIONS[name].get("tools", [])
    ]
    rendered = model.tokenizer.apply_chat_template(
        messages, tools=tools or None, add_generation_prompt=True, **options
    )
    assert playing.jobs[-1].prompt == list(rendered)


def test_blocks_are_joined_with_nothing_between(http: TestClient, playing: Playing) -> None:
    one = post(http, "/v1/messages", CONVERSATIONS["system"])
    blocks = post(http, "/v1/messages", CONVERSATIONS["system blocks"])
    assert playing.jobs[0].prompt == playing.jobs[1].prompt
    assert one["mtplx"]["notes"] == []
    assert blocks["mtplx"]["notes"] == ["text blocks are joined (system)"]


def test_what_templates_have_no_place_for_is_told(http: TestClient) -> None:
    calls = CALLED | {"content": [*CALLED["content"], {"type": "text", "text": "So."}]}
    failed = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True}],
    }
    body = asking(tools=[WEATHER, ADD], messages=[ASKED, calls, failed])
    notes = post(http, "/v1/messages", body)["mtplx"]["notes"]
    assert notes == [
        "text blocks are joined (messages[1])",
        "text behind tool calls stands before them (messages[1])",
        "is_error is not told to the model, the text of the result is (messages[2].content[0])",
    ]


def test_system_messages_in_the_middle_are_refused_in_words_that_clients_know(
    http: TestClient,
) -> None:
    later = {"role": "system", "content": "Tools changed."}
    message = refusal(http, asking(system="Be brief.", messages=[ASKED, later]))
    assert message.startswith("messages[1]: role 'system' is not supported on this model")
    message = refusal(http, asking(system="Be brief.", messages=[later, ASKED]))
    assert message.startswith("messages[0]: role 'system' is not supported on this model")


def test_system_messages_stay_where_the_template_takes_them(tmp_path: Path) -> None:
    playing = Playing()
    model = make_model(tmp_path / NAME, TEMPLATES["chatml"])
    with scripted_service(playing, model=model) as service, client_of(build_app(service)) as http:
        later = {"role": "system", "content": [{"type": "text", "text": "Tools changed."}]}
        post(
            http, "/v1/messages", asking(system="Be brief.", messages=[ASKED, later], thinking=None)
        )
    prompt = model.tokenizer.decode(playing.jobs[0].prompt)
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHow is it?<|im_end|>\n"
        "<|im_start|>system\nTools changed.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_turns_of_one_role_are_one_where_they_must_alternate(tmp_path: Path) -> None:
    playing = Playing()
    model = make_model(tmp_path / NAME, TEMPLATES["mistral"])
    twice = asking(messages=[ASKED, {"role": "user", "content": "Well?"}], thinking=None)
    with scripted_service(playing, model=model) as service, client_of(build_app(service)) as http:
        message = post(http, "/v1/messages", twice)
    assert model.tokenizer.decode(playing.jobs[0].prompt) == "[INST]How is it?\n\nWell?[/INST]"
    assert "one message with the one before it (messages[1])" in message["mtplx"]["notes"]


def test_turns_of_one_role_stay_apart_where_they_may(
    http: TestClient, playing: Playing, model: ServedModel
) -> None:
    post(http, "/v1/messages", asking(messages=[ASKED, {"role": "user", "content": "Well?"}]))
    assert model.tokenizer.decode(playing.jobs[-1].prompt).count("<|im_start|>user") == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"messages": [ASKED, {"role": "assistant", "content": "It is"}]},
            "messages[1] is of the assistant",
        ),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content is empty"),
        (
            {"messages": [ASKED, RESULTS], "tools": [WEATHER, ADD]},
            "messages[1].content[0].tool_use_id is 'toolu_1'",
        ),
        ({"tools": [WEATHER | {"name": "a b"}]}, "tools[0].name is 'a b'"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name: 'get_weather' was offered before"),
        (
            {"tools": [WEATHER | {"strict": True, "input_schema": {"type": "wrong"}}]},
            "tools",
        ),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}},
            "tool_choice names 'other'",
        ),
        ({"tool_choice": {"type": "any"}}, "tool_choice asks for a call and no tools"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "wrong"}}}},
            "output_config.format.schema: ",
        ),
        (
            {
                "messages": [
                    ASKED,
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "", "signature": seal("x") + "?"}
                        ],
                    },
                    ASKED,
                ]
            },
            "messages[1].content[0].signature: the signature of this block is damaged",
        ),
        ({"depth": 2, "generation_mode": "ar"}, "depth is 2"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_key(
    http: TestClient, playing: Playing, keys: dict[str, Any], message: str
) -> None:
    assert refusal(http, asking(**keys)).startswith(message)
    assert not playing.jobs


def test_models_that_do_not_think(tmp_path: Path) -> None:
    model = make_model(tmp_path / NAME, TEMPLATES["chatml"])
    enabled = {"type": "enabled", "budget_tokens": 1024}
    with scripted_service(Playing(), model=model) as service, client_of(build_app(service)) as http:
        for config in ({"type": "disabled"}, {"type": "adaptive"}, None):
            post(http, "/v1/messages", asking(thinking=config))
        assert refusal(http, asking(thinking=enabled)).startswith("thinking is enabled")
        mtp = asking(generation_mode="mtp", thinking=None)
        assert refusal(http, mtp).startswith('generation_mode is "mtp"')


def test_thinking_without_a_switch(tmp_path: Path) -> None:
    template = TEMPLATES["chatml"].replace(
        "assistant\\n' }}{%- endif", "assistant\\n<think>\\n' }}{%- endif"
    )
    model = make_model(tmp_path / NAME, template + "{#</think>#}", words=("<think>", "</think>"))
    enabled = {"type": "enabled", "budget_tokens": 1024}
    with scripted_service(Playing(), model=model) as service, client_of(build_app(service)) as http:
        post(http, "/v1/messages", asking(thinking=enabled))
        message = refusal(http, asking(thinking={"type": "disabled"}))
        assert message.startswith("thinking: the chat template of qwen3 does not read it")


def test_effort_reaches_templates_that_read_it(tmp_path: Path) -> None:
    template = TEMPLATES["chatml"].replace(
        "assistant\\n'", "assistant ' + (reasoning_effort or 'none')"
    )
    playing = Playing()
    model = make_model(tmp_path / NAME, template)
    with scripted_service(playing, model=model) as service, client_of(build_app(service)) as http:
        body = asking(thinking=None, output_config={"effort": "xhigh"})
        post(http, "/v1/messages", body)
    assert model.tokenizer.decode(playing.jobs[0].prompt).endswith("assistant xhigh")


def test_what_has_no_effect_is_told(http: TestClient) -> None:
    budget = {"type": "enabled", "budget_tokens": 1024}
    body = asking(thinking=budget, output_config={"effort": "low"})
    notes = post(http, "/v1/messages", body)["mtplx"]["notes"]
    assert notes == ["has no effect here (thinking.budget_tokens, output_config.effort)"]


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
def test_callers_with_keys_do_not_share_prefixes(model: ServedModel, header: str) -> None:
    playing = Playing()
    secrets = {"ann": "a" * 20, "bob": "b" * 20}
    config = ServerConfig(keys=ApiKeys.of(**secrets), deadline_s=9.0)
    service = scripted_service(playing, model=model, config=config)
    with service as running, client_of(build_app(running)) as http:
        for secret in secrets.values():
            value = secret if header == "x-api-key" else f"Bearer {secret}"
            answer = http.post("/v1/messages", json=asking(), headers={header: value})
            assert answer.status_code == 200
        refused = http.post("/v1/messages", json=asking(), headers={"x-api-key": "c" * 20})
    assert [job.cache_key for job in playing.jobs] == ["ann", "bob"]
    assert all(job.checkpoints and job.deadline_s == 9.0 for job in playing.jobs)
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "authentication_error"


def test_signatures_carry_thinking_only_where_it_is_not_shown() -> None:
    assert unseal("", seal("héllo")) == "héllo"
    assert unseal("shown", seal("other")) == "shown"
    assert unseal("", sign("héllo")) == ""
    assert sign("a") != sign("b")
    with pytest.raises(ValueError, match="damaged"):
        unseal("", seal("héllo")[:-3])
