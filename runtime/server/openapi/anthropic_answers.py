"""What the endpoints of Anthropic's API answer, for the document alone."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mtplx.runtime.server.openapi.answers import Answer, Told


class Block(Answer):
    """Text, thinking with its signature, or a call with its input."""

    type: Literal["text", "thinking", "tool_use"]
    text: str = ""
    thinking: str = ""
    signature: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = Field(default={})


class OutputDetails(Answer):
    """Of the answer's tokens."""

    thinking_tokens: int = Field(ge=0)


class Usage(Answer):
    """Counts of tokens."""

    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    cache_creation_input_tokens: int = Field(ge=0)
    cache_read_input_tokens: int = Field(ge=0)
    output_tokens_details: OutputDetails | None = None


class AppliedEdits(Answer):
    """What was left out of the conversation."""

    applied_edits: list[dict[str, Any]]


class Message(Answer):
    """`/v1/messages`."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Block]
    stop_reason: Literal[
        "end_turn", "max_tokens", "model_context_window_exceeded", "stop_sequence", "tool_use"
    ]
    stop_sequence: str | None
    usage: Usage
    mtplx: Told
    context_management: AppliedEdits | None = None


class OriginalTokens(Answer):
    """The prompt before anything was left out."""

    original_input_tokens: int


class Counted(Answer):
    """`/v1/messages/count_tokens`."""

    input_tokens: int = Field(ge=1)
    context_management: OriginalTokens | None = None
