"""An answer as clients see it, piece by piece: text, reasoning and tool calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """Text the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call begins; calls of one answer are numbered from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArgumentsPart:
    """The next piece of the JSON text of a call's arguments; the pieces joined are one object."""

    index: int
    text: str


Part = TextPart | ReasoningPart | ToolCallPart | ToolArgumentsPart
