"""An answer as the events of a stream. The whole message is made of the same events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple

from mtplx.runtime.decode.result import Generation
from mtplx.runtime.server.answering import Delta
from mtplx.runtime.server.anthropic.usage import usage, usage_of
from mtplx.runtime.server.parts import (
    Part,
    ReasoningPart,
    TextPart,
    ToolArgumentsPart,
    ToolCallPart,
)
from mtplx.runtime.server.sealing import seal, sign
from mtplx.runtime.server.told import told

Event = dict[str, Any]


class Head(NamedTuple):
    """What is known of a message before its first token.

    `notes` tell what of the request was put otherwise, `edits` what was asked to be left out of it.
    """

    id: str
    model: str
    prompt_tokens: int
    max_tokens: int
    shows_thinking: bool = True
    notes: tuple[str, ...] = ()
    edits: tuple[dict[str, Any], ...] | None = None


async def message_events(head: Head, deltas: AsyncIterator[Delta]) -> AsyncGenerator[Event]:
    """The events of one message, in order.

    The first comes with the first sign of the model, as by then it is known how much of the prompt was kept.
    """
    blocks = Blocks(shows_thinking=head.shows_thinking)
    has_started = False
    async for delta in deltas:
        if not has_started:
            has_started = True
            yield _start(head, delta)
            yield {"type": "ping"}
        for event in blocks.feed(delta.parts):
            yield event
        if delta.generation is not None and delta.finish_reason is not None:
            for event in blocks.finish():
                yield event
            yield _end(head, delta, delta.generation)
            yield {"type": "message_stop"}


class Blocks:
    """Opens, fills and closes content blocks as the parts of an answer come."""

    def __init__(self, *, shows_thinking: bool = True) -> None:
        self._shows_thinking = shows_thinking
        self._index = -1
        self._kind = ""
        self._thinking: list[str] = []

    def feed(self, parts: Sequence[Part]) -> Iterator[Event]:
        """The events that `parts` make."""
        for part in parts:
            match part:
                case TextPart(text):
                    yield from self._within("text", {"type": "text", "text": ""})
                    yield self._delta({"type": "text_delta", "text": text})
                case ReasoningPart(text):
                    start = {"type": "thinking", "thinking": "", "signature": ""}
                    yield from self._within("thinking", start)
                    self._thinking.append(text)
                    if self._shows_thinking:
                        yield self._delta({"type": "thinking_delta", "thinking": text})
                case ToolCallPart(_, call_id, name):
                    yield from self.finish()
                    call = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                    yield self._open("tool_use", call)
                case ToolArgumentsPart(_, text):
                    yield self._delta({"type": "input_json_delta", "partial_json": text})

    def finish(self) -> Iterator[Event]:
        """The events that close the block which is open, if one is."""
        if not self._kind:
            return
        if self._kind == "thinking":
            thinking = "".join(self._thinking)
            signature = sign(thinking) if self._shows_thinking else seal(thinking)
            yield self._delta({"type": "signature_delta", "signature": signature})
            self._thinking.clear()
        self._kind = ""
        yield {"type": "content_block_stop", "index": self._index}

    def _within(self, kind: str, block: dict[str, Any]) -> Iterator[Event]:
        """Open a block unless one of this kind is open."""
        if self._kind != kind:
            yield from self.finish()
            yield self._open(kind, block)

    def _open(self, kind: str, block: dict[str, Any]) -> Event:
        self._kind = kind
        self._index += 1
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def stop_reason(finish_reason: str, generation: Generation, max_tokens: int) -> str:
    """Why the answer ended; `max_tokens` is what was asked for, of which the context may have left less."""
    if generation.stop_sequence is not None:
        return "stop_sequence"
    if finish_reason == "tool_calls":
        return "tool_use"
    if finish_reason == "length":
        is_cut = generation.stats.completion_tokens < max_tokens
        return "model_context_window_exceeded" if is_cut else "max_tokens"
    return "end_turn"


def _start(head: Head, delta: Delta) -> Event:
    cached = 0 if delta.progress is None else head.prompt_tokens - delta.progress.total
    message: dict[str, Any] = {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage(head.prompt_tokens, cached),
    }
    return {"type": "message_start", "message": message}


def _end(head: Head, delta: Delta, generation: Generation) -> Event:
    reason = stop_reason(delta.finish_reason or "stop", generation, head.max_tokens)
    end: Event = {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": generation.stop_sequence},
        "usage": usage_of(generation, delta.reasoning_tokens),
        "mtplx": told(generation, head.notes),
    }
    if head.edits is not None:
        end["context_management"] = {"applied_edits": list(head.edits)}
    return end
