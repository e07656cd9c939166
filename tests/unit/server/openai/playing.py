"""Tools and requests of these tests."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.server.playing import NAME


def function(name: str, **properties: str) -> dict[str, Any]:
    """A tool whose arguments are all required, and of the types that `properties` name."""
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


WEATHER = function("get_weather", city="string")
ADD = function("add", a="integer", b="array")


def asking(text: str = "hi", **keys: Any) -> dict[str, Any]:
    """A request of one question, answered without thinking unless `keys` say otherwise; None takes a key out."""
    plain: dict[str, Any] = {
        "model": NAME,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 300,
        "reasoning_effort": "none",
    }
    return {key: value for key, value in (plain | keys).items() if value is not None}


def chunks_of(text: str) -> list[dict[str, Any]]:
    """The chunks of a stream, whose last event says that it is done."""
    *chunks, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [
        json.loads(chunk.removeprefix("data: ")) for chunk in chunks if not chunk.startswith(":")
    ]


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client has at the end of a stream, as the answer that comes in one piece has it, ids of calls left out."""
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for new in chunk["choices"]:
            choice = choices.setdefault(
                new["index"], {"text": "", "reasoning": "", "calls": [], "logprobs": []}
            )
            assert "finish_reason" not in choice, "nothing follows an end"
            delta = new["delta"]
            choice["text"] += delta.get("content") or ""
            choice["reasoning"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                _add_call(choice["calls"], call)
            choice["logprobs"] += (new["logprobs"] or {}).get("content") or []
            if new["finish_reason"] is not None:
                choice["finish_reason"] = new["finish_reason"]
    return {"choices": [choices[index] for index in sorted(choices)], "usage": usage}


def _add_call(calls: list[dict[str, Any]], new: dict[str, Any]) -> None:
    function = new["function"]
    if "id" in new:
        assert new["index"] == len(calls)
        calls.append({"name": function["name"], "arguments": ""})
    calls[new["index"]]["arguments"] += function["arguments"]


def whole(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer in one piece, in the form of `joined`."""
    return {
        "choices": [
            {
                "text": choice["message"]["content"] or "",
                "reasoning": choice["message"].get("reasoning_content", ""),
                "calls": [
                    {key: call["function"][key] for key in ("name", "arguments")}
                    for call in choice["message"].get("tool_calls", [])
                ],
                "logprobs": (choice["logprobs"] or {}).get("content") or [],
                "finish_reason": choice["finish_reason"],
            }
            for choice in answer["choices"]
        ],
        "usage": answer["usage"],
    }
