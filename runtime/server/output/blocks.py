"""Dialects that are read once a call is complete: XML and Python forms, parsed by mlx-lm where it can."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import regex

from mtplx.runtime.server.output.dialect import Reading, Status, Tools, any_name, tool_names
from mtplx.runtime.server.output.pieces import CallArguments, CallClosed, CallEvent, CallOpened

Parse = Callable[[str, Any], Any]
"""From the text between the markers and the offered tools to `{name, arguments, id?}`, or a list of those."""

MAX_CHARACTERS = 4 * 1024 * 1024
"""A candidate that grows beyond this is taken for text."""

# What mlx-lm's parsers raise for text that is no call.
_NO_CALL = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    SyntaxError,
    RecursionError,
    MemoryError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDialect:
    """Calls between two markers.

    `begins` is what the text behind the start marker must look like, a regular expression with NAME for any offered
    name. An end marker counts only behind one of `closers` (an argument may hold its text), or where no tag was
    opened.
    """

    name: str
    start: str
    end: str
    parse: Parse
    begins: str = ""
    closers: tuple[str, ...] = ()
    opens_at_start: bool = False

    def reader(self, tools: Tools) -> BlockReader:
        """A reader for one candidate."""
        return BlockReader(self, tools)


class BlockReader:
    """Gathers the text behind one marker of a BlockDialect until it is a complete call."""

    def __init__(self, dialect: BlockDialect, tools: Tools) -> None:
        self._dialect = dialect
        self._tools = [dict(tool) for tool in tools]
        self._names = frozenset(tool_names(tools))
        self._begins = regex.compile(dialect.begins.replace("NAME", any_name(tools)))
        self._text = ""
        self._has_begun = False

    @property
    def has_begun(self) -> bool:
        """Whether the text began like a call."""
        return self._has_begun

    def feed(self, text: str) -> Reading:
        """More text; see Reader."""
        searched = max(len(self._text) - len(self._dialect.end) + 1, 0)
        self._text += text
        if not self._has_begun:
            if self._begins.match(self._text) is not None:
                self._has_begun = True
            elif self._begins.match(self._text, partial=True) is None:
                return Reading(Status.REJECTED, [])
        end = self._dialect.end
        at = self._text.find(end, searched) if end else -1
        while at >= 0:
            inner = self._text[:at]
            if self._is_closed(inner):
                return self._read(inner, len(self._text) - at - len(end))
            at = self._text.find(end, at + len(end))
        is_long = len(self._text) > MAX_CHARACTERS
        return Reading(Status.REJECTED if is_long else Status.UNDECIDED, [])

    def finish(self) -> Reading:
        """The end of the text: without an end marker it is no call, unless the dialect has none."""
        if self._dialect.end or not self._has_begun:
            return Reading(Status.REJECTED, [])
        return self._read(self._text, 0)

    def _is_closed(self, inner: str) -> bool:
        closers = self._dialect.closers
        return not closers or inner.rstrip().endswith(closers) or "<" not in inner

    def _read(self, inner: str, behind: int) -> Reading:
        events = self._events(inner)
        return Reading(Status.DONE if events else Status.REJECTED, events, behind)

    def _events(self, inner: str) -> list[CallEvent]:
        """All calls of the block; none if one of them is not a call of an offered tool."""
        events: list[CallEvent] = []
        try:
            parsed = self._dialect.parse(inner, self._tools)
            for call in parsed if isinstance(parsed, list) else [parsed]:
                name, arguments, call_id = call["name"], call["arguments"], call.get("id")
                if name not in self._names or not isinstance(arguments, dict):
                    return []
                text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
                opened = CallOpened(name, call_id if isinstance(call_id, str) else None)
                events += [opened, CallArguments(text), CallClosed(is_complete=True)]
        except _NO_CALL:
            return []
        return events
