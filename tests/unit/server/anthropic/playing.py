"""Tools and requests of these tests."""

from __future__ import annotations

from typing import Any

from tests.unit.server.playing import NAME

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
ADD = {
    "name": "add",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def asking(text: str = "hi", **keys: Any) -> dict[str, Any]:
    """A request of one question, answered without thinking unless `keys` say otherwise."""
    plain: dict[str, Any] = {
        "model": NAME,
        "max_tokens": 300,
        "messages": [{"role": "user", "content": text}],
        "thinking": {"type": "disabled"},
    }
    return {key: value for key, value in (plain | keys).items() if value is not None}
