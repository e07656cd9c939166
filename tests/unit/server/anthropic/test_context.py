"""Thinking of earlier turns is left out where a client asks for it, and it is told what that saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter

from mtplx.runtime.server.anthropic.context import CLEAR_THINKING, clear_thinking
from mtplx.runtime.server.anthropic.schema_messages import Message
from mtplx.runtime.server.app import build_app
from tests.support.scripted_service import client_of, scripted_service
from tests.unit.server.anthropic.playing import asking
from tests.unit.server.chat_models import CHATML, make_model
from tests.unit.server.playing import NAME, Playing

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.testclient import TestClient

    from mtplx.runtime.server.served import ServedModel

WITH_THINKING = CHATML.replace(
    "+ m.content",
    "+ (m.reasoning_content or '') + '|' + m.content + (m.tool_calls or []) | tojson",
)


def thought(name: str, *more: dict[str, Any]) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": f"<{name}>", "signature": "s"}
    return {"role": "assistant", "content": [block, *more]}


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


CALL = {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1, "b": 2}}
RESULT = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "t", "content": "3"}],
}
TALK = [
    said("one"),
    thought("1", {"type": "text", "text": "yes"}),
    said("two"),
    thought("2", CALL),
    RESULT,
    thought("2b"),
    said("three"),
    {"role": "assistant", "content": "no thought"},
    said("four"),
]


@pytest.fixture
def playing() -> Playing:
    return Playing()


@pytest.fixture
def thinker(tmp_path: Path) -> ServedModel:
    """A model whose template writes out what was thought."""
    return make_model(tmp_path / NAME, WITH_THINKING)


@pytest.fixture
def http(thinker: ServedModel, playing: Playing) -> Iterator[TestClient]:
    with scripted_service(playing, model=thinker) as service:
        yield client_of(build_app(service))


def thoughts(messages: list[Any]) -> list[str]:
    """What is thought in messages, in order."""
    blocks = [block for message in messages for block in message.content]
    return [block.thinking for block in blocks if getattr(block, "type", "") == "thinking"]


@pytest.mark.parametrize(
    ("keep", "kept", "cleared"),
    [
        (None, ["<1>", "<2>", "<2b>"], 0),
        (3, ["<1>", "<2>", "<2b>"], 0),
        (2, ["<1>", "<2>", "<2b>"], 0),
        (1, ["<2>", "<2b>"], 1),
    ],
)
def test_the_last_turns_keep_their_thinking(
    keep: int | None, kept: list[str], cleared: int
) -> None:
    messages = TypeAdapter(list[Message]).validate_python(TALK)
    edited = clear_thinking(messages, keep)
    assert thoughts(edited.messages) == kept
    assert edited.cleared_turns == cleared
    assert len(edited.messages) == len(messages)


def test_a_message_of_thinking_alone_stays_and_is_empty() -> None:
    messages = TypeAdapter(list[Message]).validate_python([said("a"), thought("1"), *TALK])
    assert clear_thinking(messages, 1).messages[1].content == ""


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_cleared_is_told(
    http: TestClient, playing: Playing, thinker: ServedModel, stream: bool
) -> None:
    edits = [{"type": CLEAR_THINKING, "keep": {"type": "thinking_turns", "value": 1}}]
    body = asking(messages=TALK, tools=None, thinking=None, stream=stream)
    http.post("/v1/messages", json=body)
    answer = http.post("/v1/messages", json=body | {"context_management": {"edits": edits}})
    before, after = (thinker.tokenizer.decode(job.prompt) for job in playing.jobs)
    assert after == before.replace("<1>", "")
    told = '"context_management":{"applied_edits":[{"type":"clear_thinking_20251015",'
    assert told + '"cleared_thinking_turns":1,"cleared_input_tokens":3}]}' in answer.text
    del body["max_tokens"], body["stream"]
    counted = http.post(
        "/v1/messages/count_tokens", json=body | {"context_management": {"edits": edits}}
    ).json()
    assert counted["input_tokens"] == len(playing.jobs[1].prompt)
    assert counted["context_management"]["original_input_tokens"] == len(playing.jobs[0].prompt)


def test_nothing_is_told_where_nothing_was_asked(http: TestClient) -> None:
    assert "context_management" not in http.post("/v1/messages", json=asking(thinking=None)).json()
    body = asking(thinking=None, context_management={"edits": []}, tools=[])
    assert http.post("/v1/messages", json=body).json()["context_management"] == {
        "applied_edits": []
    }


def test_other_edits_are_refused_with_their_place(http: TestClient) -> None:
    edits = [{"type": CLEAR_THINKING}, {"type": "compact_20260112"}]
    response = http.post("/v1/messages", json=asking(context_management={"edits": edits}))
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert message.startswith("context_management.edits[1] is of type 'compact_20260112'")
