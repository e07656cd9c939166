"""An answer as the events of a response. The whole response is made of the same events.

The order is that of the public API (https://platform.openai.com/docs/api-reference/responses-streaming): the response
is created and in progress; each item is added, has its content part added, filled and done, and is done itself; the
response is completed or incomplete, or has failed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtplx.contracts.errors import MTPLXError
from mtplx.runtime.server.answering import Delta
from mtplx.runtime.server.openai.response_logprobs import TextLogprobs
from mtplx.runtime.server.openai.usage import Usage
from mtplx.runtime.server.parts import (
    Part,
    ReasoningPart,
    TextPart,
    ToolArgumentsPart,
    ToolCallPart,
)
from mtplx.runtime.server.sealing import seal
from mtplx.runtime.server.told import told

Event = dict[str, Any]


class ResponseEvents:
    """Numbers the events of one response, and knows how far it has come.

    `head` are the keys of the response that hold from its beginning to its end; `name` is what ids are made of.
    """

    def __init__(
        self,
        head: dict[str, Any],
        name: str,
        *,
        notes: Sequence[str] = (),
        seals: bool = False,
        logprobs: TextLogprobs | None = None,
    ) -> None:
        self._head = head
        self._notes = tuple(notes)
        self._items = Items(name, seals=seals, logprobs=logprobs)
        self._number = 0

    async def of(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[Event]:
        """The events of an answer, in order."""
        has_started = False
        async for delta in deltas:
            if not has_started:
                has_started = True
                for kind in ("created", "in_progress"):
                    yield self._response(kind, {"status": "in_progress"})
            for event in self._items.feed(delta):
                yield self._numbered(event)
            if delta.generation is not None and delta.finish_reason is not None:
                for event in self._items.finish(is_cut=delta.finish_reason == "length"):
                    yield self._numbered(event)
                yield self._end(delta)

    def failed(self, error: MTPLXError) -> Event:
        """The last event of a response that failed after its first."""
        fault = {"code": "server_error", "message": str(error)}
        return self._response("failed", {"status": "failed", "error": fault})

    def _end(self, delta: Delta) -> Event:
        assert delta.generation is not None, "an end has its generation"
        usage = Usage()
        usage.add(delta, is_new_prompt=True)
        is_cut = delta.finish_reason == "length"
        kind = "incomplete" if is_cut else "completed"
        details = {"reason": "max_output_tokens"} if is_cut else None
        return self._response(
            kind,
            {
                "status": kind,
                "incomplete_details": details,
                "usage": usage.to_response(),
                "mtplx": told(delta.generation, self._notes),
            },
        )

    def _response(self, kind: str, keys: dict[str, Any]) -> Event:
        response = {**self._head, "output": list(self._items.done), **keys}
        return self._numbered({"type": f"response.{kind}", "response": response})

    def _numbered(self, event: Event) -> Event:
        event["sequence_number"] = self._number
        self._number += 1
        return event


@dataclass(slots=True)
class _Open:
    """The item that is being filled: of a message and of reasoning its only content part."""

    kind: str
    id: str
    keys: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)


class Items:
    """Opens, fills and closes the items of `output` as the parts of an answer come; `done` are closed."""

    def __init__(self, name: str, *, seals: bool, logprobs: TextLogprobs | None) -> None:
        self.done: list[dict[str, Any]] = []
        self._name = name
        self._seals = seals
        self._logprobs = logprobs
        self._open: _Open | None = None

    def feed(self, delta: Delta) -> Iterator[Event]:
        """The events that `delta` makes."""
        if self._logprobs is not None:
            self._logprobs.take(delta.logprobs)
        for part in delta.parts:
            yield from self._part(part)

    def _part(self, part: Part) -> Iterator[Event]:
        match part:
            case TextPart(text):
                yield from self._within("message", {"role": "assistant"})
                logprobs = [] if self._logprobs is None else self._logprobs.of(text)
                assert self._open is not None, "opened above"
                self._open.logprobs += logprobs
                yield self._delta("output_text.delta", text, {"logprobs": logprobs})
            case ReasoningPart(text):
                yield from self._within("reasoning", {"summary": []})
                yield self._delta("reasoning_text.delta", text)
            case ToolCallPart(_, call_id, name):
                yield from self.finish()
                if self._logprobs is not None:
                    self._logprobs.end()
                yield from self._begin("function_call", {"call_id": call_id, "name": name})
            case ToolArgumentsPart(_, text):
                yield self._delta("function_call_arguments.delta", text, is_in_part=False)

    def finish(self, *, is_cut: bool = False) -> Iterator[Event]:
        """The events that close the item which is open, if one is; `is_cut` says that more would have come."""
        if self._open is None:
            return
        opened, self._open = self._open, None
        text = "".join(opened.pieces)
        at = self._at(opened)
        if opened.kind == "function_call":
            yield {"type": "response.function_call_arguments.done", "arguments": text, **at}
        else:
            at["content_index"] = 0
            part = self._content_part(opened, text)
            kind = "output_text" if opened.kind == "message" else "reasoning_text"
            more = {"logprobs": opened.logprobs} if opened.kind == "message" else {}
            yield {"type": f"response.{kind}.done", "text": text, **more, **at}
            yield {"type": "response.content_part.done", "part": part, **at}
        status = "incomplete" if is_cut else "completed"
        item = self._item(opened, text, status)
        yield {
            "type": "response.output_item.done",
            "output_index": len(self.done),
            "item": item,
        }
        self.done.append(item)

    def _within(self, kind: str, keys: dict[str, Any]) -> Iterator[Event]:
        """Open an item unless one of this kind is open."""
        if self._open is None or self._open.kind != kind:
            yield from self.finish()
            yield from self._begin(kind, keys)

    def _begin(self, kind: str, keys: dict[str, Any]) -> Iterator[Event]:
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[kind]
        opened = _Open(kind, f"{prefix}_{self._name}_{len(self.done)}", keys)
        self._open = opened
        yield {
            "type": "response.output_item.added",
            "output_index": len(self.done),
            "item": self._item(dataclasses.replace(opened), None, "in_progress"),
        }
        if kind != "function_call":
            part = self._content_part(opened, "")
            at = self._at(opened) | {"content_index": 0}
            yield {"type": "response.content_part.added", "part": part, **at}

    def _delta(
        self, kind: str, text: str, more: dict[str, Any] | None = None, *, is_in_part: bool = True
    ) -> Event:
        assert self._open is not None, "an item is open"
        self._open.pieces.append(text)
        at = self._at(self._open) | ({"content_index": 0} if is_in_part else {})
        return {"type": f"response.{kind}", "delta": text, **(more or {}), **at}

    def _at(self, opened: _Open) -> dict[str, Any]:
        return {"item_id": opened.id, "output_index": len(self.done)}

    def _content_part(self, opened: _Open, text: str) -> dict[str, Any]:
        if opened.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {
            "type": "output_text",
            "text": text,
            "annotations": [],
            "logprobs": list(opened.logprobs),
        }

    def _item(self, opened: _Open, text: str | None, status: str) -> dict[str, Any]:
        """The item; without its text, `text` being None, as it is when it is added."""
        item: dict[str, Any] = {"id": opened.id, "type": opened.kind, "status": status}
        item |= opened.keys
        if opened.kind == "function_call":
            return item | {"arguments": text or ""}
        if text is None:
            return item | {"content": []}
        item["content"] = [self._content_part(opened, text)]
        if opened.kind == "reasoning" and self._seals:
            item["encrypted_content"] = seal(text)
        return item
