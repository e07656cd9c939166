"""The seam for tool call dialects: how a model writes that it calls a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

import regex

from mtplx.runtime.server.output.pieces import CallEvent

Tools = Sequence[Mapping[str, Any]]


class Status(Enum):
    """What a reader thinks of the text behind a start marker.

    UNDECIDED: it may be a call, and nothing was given out. READING: a call was opened. REJECTED: it is ordinary text.
    DONE: the calls have ended.
    """

    UNDECIDED = "undecided"
    READING = "reading"
    REJECTED = "rejected"
    DONE = "done"


class Reading(NamedTuple):
    """Events that the text completed, once a call was opened.

    `held` counts the characters at the end of what was fed that belong to no call so far: while READING they may
    still do, when DONE they are the text behind the calls.
    """

    status: Status
    events: list[CallEvent]
    held: int = 0


class Reader(Protocol):
    """Reads what follows one start marker.

    What it says must not depend on how the text is split: the same text gives the same events, arguments joined, and
    the same text behind them.
    """

    @property
    def has_begun(self) -> bool:
        """Whether the text began like a call, so that a rejected one was a malformed call and not prose."""

    def feed(self, text: str) -> Reading:
        """More text. Not called again after REJECTED or DONE."""

    def finish(self) -> Reading:
        """No more text comes. UNDECIDED is then REJECTED; a call left open was closed as incomplete."""


class Dialect(Protocol):
    """One way to write tool calls."""

    @property
    def name(self) -> str:
        """Short name, for logs and messages."""

    @property
    def start(self) -> str:
        """The marker that a call, or a block of calls, begins with."""

    @property
    def opens_at_start(self) -> bool:
        """Whether an answer that begins like a call is one, without a marker."""

    def reader(self, tools: Tools) -> Reader:
        """A reader for one candidate."""


def tool_names(tools: Tools) -> tuple[str, ...]:
    """The names of the offered functions, in order."""
    return tuple(str(tool["function"]["name"]) for tool in tools)


def any_name(tools: Tools) -> str:
    """A pattern for the name of any offered function."""
    # Longer ones first, so that a name is not taken for another one that begins it.
    names = sorted(tool_names(tools), key=len, reverse=True)
    return "(?:" + "|".join(regex.escape(name) for name in names) + ")"
