"""Chat completions as chunks of a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from mtplx.runtime.server.answering import Delta
from mtplx.runtime.server.openai.chat import PREFIX, Asked
from mtplx.runtime.server.openai.choices import ChoiceDelta
from mtplx.runtime.server.openai.head import Head
from mtplx.runtime.server.openai.logprobs import chat_logprobs
from mtplx.runtime.server.openai.tokens import TokenTexts
from mtplx.runtime.server.openai.usage import Usage
from mtplx.runtime.server.parts import (
    Part,
    ReasoningPart,
    TextPart,
    ToolArgumentsPart,
    ToolCallPart,
)
from mtplx.runtime.server.told import told

Chunk = dict[str, Any]


async def chat_chunks(
    head: Head,
    asked: Asked,
    texts: TokenTexts,
    deltas: AsyncIterator[ChoiceDelta],
    *,
    include_usage: bool,
) -> AsyncGenerator[Chunk]:
    """The chunks, in order: of each choice one with the role, its pieces, and one with its end; then the usage.

    With `include_usage` every chunk but the last has the usage null.
    """
    envelope: Chunk = head.envelope(PREFIX, "chat.completion.chunk")
    if include_usage:
        envelope["usage"] = None
    usage = Usage()
    begun: set[int] = set()
    async for index, delta in deltas:
        choice = asked.choices[index]
        if index not in begun:
            begun.add(index)
            yield _chunk(envelope, index, {"role": "assistant", "content": "", "refusal": None})
        piece = _piece(delta.parts)
        logprobs = None
        if choice.job.options.logprobs is not None and delta.logprobs:
            logprobs = {"content": chat_logprobs(texts, delta.logprobs), "refusal": None}
        if piece or logprobs:
            yield _chunk(envelope, index, piece, logprobs)
        if delta.generation is not None and delta.finish_reason is not None:
            usage.add(delta, is_new_prompt=choice.is_new_prompt)
            yield _end(envelope, index, delta, asked.notes)
    if include_usage:
        yield {**envelope, "choices": [], "usage": usage.to_json()}


def _chunk(
    envelope: Chunk, index: int, piece: dict[str, Any], logprobs: dict[str, Any] | None = None
) -> Chunk:
    choice = {"index": index, "delta": piece, "logprobs": logprobs, "finish_reason": None}
    return {**envelope, "choices": [choice]}


def _end(envelope: Chunk, index: int, delta: Delta, notes: tuple[str, ...]) -> Chunk:
    assert delta.generation is not None, "an end has its generation"
    choice = {
        "index": index,
        "delta": {},
        "logprobs": None,
        "finish_reason": delta.finish_reason,
        "mtplx": told(delta.generation, notes),
    }
    return {**envelope, "choices": [choice]}


def _piece(parts: Sequence[Part]) -> dict[str, Any]:
    """The `delta` of a chunk: what the parts add to text, reasoning and calls."""
    piece: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case TextPart(text):
                piece["content"] = piece.get("content", "") + text
            case ReasoningPart(text):
                piece["reasoning_content"] = piece.get("reasoning_content", "") + text
            case ToolCallPart(index, call_id, name):
                function = {"name": name, "arguments": ""}
                calls.append(
                    {"index": index, "id": call_id, "type": "function", "function": function}
                )
            case ToolArgumentsPart(index, text):
                if not calls or calls[-1]["index"] != index:
                    calls.append({"index": index, "function": {"arguments": ""}})
                calls[-1]["function"]["arguments"] += text
    if calls:
        piece["tool_calls"] = calls
    return piece
