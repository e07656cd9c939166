"""One answer's text, sorted into parts as it comes."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mtplx.runtime.server.output.calls import CallScanner
from mtplx.runtime.server.output.dialect import Dialect, Tools
from mtplx.runtime.server.output.dialects import find_dialect
from mtplx.runtime.server.output.pieces import (
    CallArguments,
    CallClosed,
    CallOpened,
    Consumed,
    Piece,
    Reasoning,
    Text,
)
from mtplx.runtime.server.output.reasoning import ReasoningSplitter, reasoning_markers
from mtplx.runtime.server.parts import (
    Part,
    ReasoningPart,
    TextPart,
    ToolArgumentsPart,
    ToolCallPart,
)

if TYPE_CHECKING:
    from mtplx.runtime.server.served import ServedModel

_ID_CHARACTERS = string.ascii_letters + string.digits
# Mistral's templates refuse ids of any other length.
_MISTRAL_ID_LENGTH = 9


def make_parser(
    model: ServedModel,
    tools: Tools,
    tool_choice: str | Mapping[str, Any] | None,
    starts_in_reasoning: bool,
    parse_reasoning: bool = True,
    *,
    parallel_tool_calls: bool = True,
) -> OutputParser:
    """The parser for one choice of `model`'s answers.

    Nothing is searched for calls when no tools were offered or `tool_choice` is "none". Without
    `parallel_tool_calls` a second call ends the answer.
    """
    reasoning = ReasoningSplitter(reasoning_markers(model.tokenizer), has_begun=starts_in_reasoning)
    dialect = find_dialect(model.tokenizer) if tools and tool_choice != "none" else None
    calls = None
    if dialect is not None:
        calls = CallScanner(dialect, tools, max_calls=None if parallel_tool_calls else 1)
    return OutputParser(
        reasoning,
        calls,
        shows_reasoning=parse_reasoning,
        id_length=_id_length(dialect),
    )


class OutputParser:
    """Sorts the text of one choice into reasoning, text and tool calls.

    The parts joined are the same however the text is split. Reasoning is never searched for calls. With
    `shows_reasoning` off, reasoning and its markers are text, and still not searched. Text that no channel shows
    (markers, the source of calls) is in `consumed`.

    A call of a tool that was not offered, and one that breaks off before its arguments begin, are text; where the
    dialect passes arguments on as they come, a call that breaks off later keeps the arguments it had. Both count as
    malformed.
    """

    def __init__(
        self,
        reasoning: ReasoningSplitter,
        calls: CallScanner | None = None,
        *,
        shows_reasoning: bool = True,
        id_length: int = 0,
    ) -> None:
        self._reasoning = reasoning
        self._calls = calls
        self._shows_reasoning = shows_reasoning
        self._id_length = id_length
        self._index = -1
        self._arguments: list[str] = []
        self._num_invalid = 0
        self._consumed: list[str] = []
        self.reasoning_characters = 0

    @property
    def has_tool_calls(self) -> bool:
        """Whether a call was opened."""
        return self._calls is not None and self._calls.num_calls > 0

    @property
    def malformed_tool_calls(self) -> int:
        """Candidates that began like a call and were none, and calls whose arguments are no JSON object."""
        return 0 if self._calls is None else self._calls.num_malformed + self._num_invalid

    @property
    def is_finished(self) -> bool:
        """Whether a second call ended the answer, where only one was wanted."""
        return self._calls is not None and self._calls.is_finished

    @property
    def is_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        return self._reasoning.is_open

    @property
    def consumed(self) -> str:
        """The text that no channel shows."""
        return "".join(self._consumed)

    def feed(self, text: str) -> list[Part]:
        """The parts that `text` completes."""
        return _merged(self._parts(self._with_calls(self._reasoning.feed(text))))

    def finish(self) -> list[Part]:
        """What was held back; called once, at the end of the text."""
        pieces = self._with_calls(self._reasoning.finish())
        if self._calls is not None:
            pieces += self._calls.finish()
        return _merged(self._parts(pieces))

    def _with_calls(self, pieces: list[Piece]) -> list[Piece]:
        """The splitter's pieces, with the calls found in the text."""
        found: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, Text) and self._calls is not None:
                found += self._calls.feed(piece.text)
            elif isinstance(piece, Consumed) and not self._shows_reasoning:
                found.append(Reasoning(piece.text))
            else:
                found.append(piece)
        return found

    def _parts(self, pieces: list[Piece]) -> Iterator[Part]:
        for piece in pieces:
            match piece:
                case Text(text):
                    yield TextPart(text)
                case Reasoning(text):
                    self.reasoning_characters += len(text)
                    yield ReasoningPart(text) if self._shows_reasoning else TextPart(text)
                case Consumed(text):
                    self._consumed.append(text)
                case CallOpened(name, call_id):
                    self._index += 1
                    self._arguments = []
                    yield ToolCallPart(self._index, call_id or self._new_id(), name)
                case CallArguments(text):
                    self._arguments.append(text)
                    yield ToolArgumentsPart(self._index, text)
                case CallClosed(is_complete):
                    self._num_invalid += is_complete and not _is_object(self._arguments)

    def _new_id(self) -> str:
        if self._id_length:
            return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(self._id_length))
        return f"call_{secrets.token_hex(12)}"


def _id_length(dialect: Dialect | None) -> int:
    return _MISTRAL_ID_LENGTH if dialect is not None and dialect.name == "mistral" else 0


def _is_object(pieces: list[str]) -> bool:
    try:
        return isinstance(json.loads("".join(pieces)), dict)
    except (ValueError, RecursionError):
        return False


def _merged(parts: Iterator[Part]) -> list[Part]:
    """Neighbours of one kind as one part."""
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            merged[-1] = TextPart(last.text + part.text)
        elif isinstance(part, ReasoningPart) and isinstance(last, ReasoningPart):
            merged[-1] = ReasoningPart(last.text + part.text)
        elif (
            isinstance(part, ToolArgumentsPart)
            and isinstance(last, ToolArgumentsPart)
            and part.index == last.index
        ):
            merged[-1] = ToolArgumentsPart(part.index, last.text + part.text)
        else:
            merged.append(part)
    return merged
