"""Both APIs give the same answer to the same question."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.scripted_owner import in_bursts
from tests.unit.server.anthropic.playing import ADD, WEATHER, asking
from tests.unit.server.playing import CALL, NAME, SECOND_CALL, Playing

if TYPE_CHECKING:
    from starlette.testclient import TestClient

ANSWERS = [
    "hm</think>Plain é 漢 👩‍💻 text.",
    "never ends",
    f"so</think>Let me see. {CALL}",
    f"so</think>{CALL}\n{SECOND_CALL}",
    f"{CALL}</think>no call",
]


@pytest.mark.parametrize("width", [1, 4, 1000])
@pytest.mark.parametrize("answer", ANSWERS)
def test_text_thinking_and_arguments_are_those_of_the_openai_api(
    http: TestClient, playing: Playing, answer: str, width: int
) -> None:
    playing.bursts = in_bursts(answer, width)
    body = asking(tools=[WEATHER, ADD], thinking=None)
    content = http.post("/v1/messages", json=body).json()["content"]
    functions = [
        {
            "type": "function",
            "function": {
                **{key: value for key, value in tool.items() if key != "input_schema"},
                "parameters": tool["input_schema"],
            },
        }
        for tool in (WEATHER, ADD)
    ]
    chat = {
        "model": NAME,
        "max_tokens": body["max_tokens"],
        "messages": body["messages"],
        "tools": functions,
    }
    theirs = http.post("/v1/chat/completions", json=chat).json()["choices"][0]["message"]

    assert _joined(content, "text") == (theirs["content"] or "")
    assert _joined(content, "thinking") == (theirs.get("reasoning_content") or "")
    calls = [(block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
    assert calls == [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in theirs.get("tool_calls") or []
    ]
    assert playing.jobs[0].prompt == playing.jobs[1].prompt


def _joined(content: list[dict[str, Any]], kind: str) -> str:
    return "".join(block[kind] for block in content if block["type"] == kind)
