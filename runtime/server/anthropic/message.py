"""An answer that is sent whole, put together from the events of its stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pydantic_core

from mtplx.runtime.server.anthropic.stream import Event

INVALID_JSON: Final = "INVALID_JSON"
"""The key of what a model wrote as the arguments of a call and is no JSON object."""

_OF_EVENTS: Final = frozenset({"type", "delta"})


async def collect(events: AsyncIterator[Event]) -> dict[str, Any]:
    """The message that `events` tell."""
    message: dict[str, Any] = {}
    content = _Content()
    async for event in events:
        match event["type"]:
            case "message_start":
                message |= event["message"]
            case "message_delta":
                message |= event["delta"]
                message |= {key: value for key, value in event.items() if key not in _OF_EVENTS}
            case _:
                content.take(event)
    return {**message, "content": content.blocks}


class _Content:
    """The blocks so far."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self._pieces: list[str] = []

    def take(self, event: Event) -> None:
        match event["type"]:
            case "content_block_start":
                self.blocks.append(dict(event["content_block"]))
                self._pieces = []
            case "content_block_delta":
                self._fill(event["delta"])
            case "content_block_stop":
                self._close(self.blocks[-1])

    def _fill(self, delta: dict[str, Any]) -> None:
        if delta["type"] == "signature_delta":
            self.blocks[-1]["signature"] = delta["signature"]
        else:
            # A delta has one key beside its type: text, thinking or partial_json.
            self._pieces += [value for key, value in delta.items() if key != "type"]

    def _close(self, block: dict[str, Any]) -> None:
        joined = "".join(self._pieces)
        if block["type"] == "tool_use":
            block["input"] = read_input(joined)
        else:
            block[block["type"]] = joined


def read_input(text: str) -> dict[str, Any]:
    """The arguments of a call: an object, of a call that broke off what had come of it."""
    if not text:
        return {}
    try:
        value = pydantic_core.from_json(text, allow_partial=True, allow_inf_nan=False)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON: text}
