"""What parsers made of a text, in a form that can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mtplx.runtime.server.output.parser import OutputParser
from mtplx.runtime.server.parts import (
    Part,
    ReasoningPart,
    TextPart,
    ToolArgumentsPart,
    ToolCallPart,
)


class Call(NamedTuple):
    """One call; `arguments` is the JSON text."""

    name: str
    arguments: str

    @property
    def values(self) -> Any:
        """The arguments."""
        return json.loads(self.arguments)


class Seen(NamedTuple):
    """What a client has at the end."""

    text: str
    reasoning: str
    calls: tuple[Call, ...]
    consumed: str
    malformed: int
    is_finished: bool


def collect(parser: OutputParser, pieces: Iterable[str]) -> Seen:
    """Feed `pieces` one after another, and finish."""
    parts: list[Part] = []
    for piece in pieces:
        parts += parser.feed(piece)
    parts += parser.finish()
    arguments: dict[int, str] = {}
    names: dict[int, str] = {}
    for part in parts:
        match part:
            case ToolCallPart(index, call_id, name):
                assert index == len(names)
                assert call_id
                names[index] = name
                arguments[index] = ""
            case ToolArgumentsPart(index, text):
                assert index == len(names) - 1, "arguments belong to the call opened last"
                arguments[index] += text
    return Seen(
        "".join(part.text for part in parts if isinstance(part, TextPart)),
        "".join(part.text for part in parts if isinstance(part, ReasoningPart)),
        tuple(Call(name, arguments[index]) for index, name in names.items()),
        parser.consumed,
        parser.malformed_tool_calls,
        parser.is_finished,
    )


def split(text: str, cuts: Sequence[int]) -> list[str]:
    """`text` cut at the given places."""
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
