"""Dialects that write the arguments as JSON: they are passed on as they come."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

import regex

from mtplx.runtime.server.output.dialect import Reading, Status, Tools, any_name, tool_names
from mtplx.runtime.server.output.json_extent import JsonExtent
from mtplx.runtime.server.output.pieces import (
    CallArguments,
    CallClosed,
    CallEvent,
    CallOpened,
    held_back,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonDialect:
    """Calls whose arguments are a JSON object in the text.

    All patterns are regular expressions that end in a character which nothing can extend, so that what they match
    does not depend on how the text was split; NAME stands for any offered name.

    `begins` is what makes a candidate look like a call. `head` leads from the marker to the opening brace of the
    arguments, with the groups `name` and perhaps `id`; `tail` are optional pieces, each at most once and in order,
    behind the arguments; `following` leads to the arguments of one more call of the same block, and `end` ends the
    block. Broken arguments reach up to `stop`. With `whole`, an object with its keys in another order is taken too,
    and read once it is complete.
    """

    name: str
    start: str
    begins: str
    head: str
    tail: tuple[str, ...] = ()
    following: str = ""
    end: str = ""
    stop: str = ""
    whole: bool = False
    opens_at_start: bool = False

    def reader(self, tools: Tools) -> JsonReader:
        """A reader for one candidate."""
        return JsonReader(self, tools)


class _State(Enum):
    HEAD = "head"
    WHOLE = "whole"
    ARGUMENTS = "arguments"
    BROKEN = "broken"
    TAIL = "tail"
    BETWEEN = "between"
    OVER = "over"


class JsonReader:
    """Reads the calls behind one marker of a JsonDialect."""

    def __init__(self, dialect: JsonDialect, tools: Tools) -> None:
        names = any_name(tools)
        self._dialect = dialect
        self._names = frozenset(tool_names(tools))
        self._begins = _compiled(dialect.begins, names)
        self._head = _compiled(dialect.head, names)
        self._tail = [_compiled(pattern, names) for pattern in dialect.tail]
        self._following = _compiled(dialect.following, names) if dialect.following else None
        self._end = _compiled(dialect.end, names) if dialect.end else None
        self._text = ""
        self._state = _State.HEAD
        self._status = Status.UNDECIDED
        self._extent = JsonExtent()
        self._scanned = 0
        self._tail_at = 0
        self._has_begun = False

    @property
    def has_begun(self) -> bool:
        """Whether the text began like a call."""
        return self._has_begun

    def feed(self, text: str) -> Reading:
        """More text; see Reader."""
        self._text += text
        if not self._has_begun and self._status is Status.UNDECIDED:
            self._has_begun = self._begins.match(self._text) is not None
        events: list[CallEvent] = []
        while self._step(events):
            pass
        return Reading(self._status, events, len(self._text))

    def finish(self) -> Reading:
        """The end of the text; see Reader."""
        if self._status is not Status.READING:
            return Reading(Status.REJECTED, [])
        if self._state in (_State.ARGUMENTS, _State.BROKEN):
            events: list[CallEvent] = [CallArguments(self._text)] if self._text else []
            return Reading(Status.DONE, [*events, CallClosed(is_complete=False)])
        # Between two calls, the beginning of another one is ordinary text.
        return Reading(Status.DONE, [], len(self._text) if self._state is _State.BETWEEN else 0)

    def _step(self, events: list[CallEvent]) -> bool:
        """Go on from the present state; False when more text is needed or nothing is left to do."""
        match self._state:
            case _State.HEAD:
                return self._read_head(self._head, events) or self._leave_head()
            case _State.WHOLE:
                return self._read_whole(events)
            case _State.ARGUMENTS:
                return self._read_arguments(events)
            case _State.BROKEN:
                return self._read_broken(events)
            case _State.TAIL:
                return self._read_tail()
            case _State.BETWEEN:
                return self._read_between(events)
            case _State.OVER:
                return False

    def _read_head(self, pattern: regex.Pattern[str], events: list[CallEvent]) -> bool:
        match = pattern.match(self._text)
        if match is None:
            return False
        groups = match.groupdict()
        events.append(CallOpened(groups["name"], groups.get("id")))
        # The brace belongs to the arguments.
        self._text = self._text[match.end() - 1 :]
        self._extent = JsonExtent()
        self._state, self._status = _State.ARGUMENTS, Status.READING
        return True

    def _leave_head(self) -> bool:
        """No call so far: wait while the text can still become one."""
        if _may_become(self._head, self._text):
            return False
        if self._dialect.whole and _may_become(self._begins, self._text):
            self._state, self._scanned = _State.WHOLE, 0
            return True
        return self._reject()

    def _read_whole(self, events: list[CallEvent]) -> bool:
        if not _may_become(self._begins, self._text):
            return self._reject()
        self._scanned += self._extent.feed(self._text[self._scanned :])
        if self._extent.is_broken:
            return self._reject()
        if not self._extent.is_done:
            return False
        call = _call_in(self._text[: self._scanned])
        if call is None or call[0] not in self._names:
            return self._reject()
        name, call_id, arguments = call
        events += [
            CallOpened(name, call_id),
            CallArguments(arguments),
            CallClosed(is_complete=True),
        ]
        self._text = self._text[self._scanned :]
        # The first piece of the tail is the brace that the object has brought along.
        self._state, self._status, self._tail_at = _State.TAIL, Status.READING, 1
        return True

    def _read_arguments(self, events: list[CallEvent]) -> bool:
        size = self._extent.feed(self._text)
        if size:
            events.append(CallArguments(self._text[:size]))
            self._text = self._text[size:]
        if self._extent.is_done:
            events.append(CallClosed(is_complete=True))
            self._state, self._tail_at = _State.TAIL, 0
        elif self._extent.is_broken:
            self._state = _State.BROKEN
        return self._state is not _State.ARGUMENTS

    def _read_broken(self, events: list[CallEvent]) -> bool:
        """Arguments that are no JSON are passed on as they are, up to the marker behind them."""
        stop = self._dialect.stop
        at = self._text.find(stop) if stop else -1
        size = at if at >= 0 else len(self._text) - held_back(self._text, stop)
        if size:
            events.append(CallArguments(self._text[:size]))
            self._text = self._text[size:]
        if at < 0:
            return False
        events.append(CallClosed(is_complete=False))
        self._state, self._tail_at = _State.TAIL, 0
        return True

    def _read_tail(self) -> bool:
        while self._tail_at < len(self._tail):
            pattern = self._tail[self._tail_at]
            match = pattern.match(self._text)
            if match is not None:
                self._text = self._text[match.end() :]
            elif _may_become(pattern, self._text):
                return False
            self._tail_at += 1
        self._state = _State.BETWEEN
        return True

    def _read_between(self, events: list[CallEvent]) -> bool:
        if self._following is not None and self._read_head(self._following, events):
            return True
        match = self._end.match(self._text) if self._end is not None else None
        if match is not None:
            self._text = self._text[match.end() :]
        elif any(
            pattern is not None and _may_become(pattern, self._text)
            for pattern in (self._following, self._end)
        ):
            return False
        self._state, self._status = _State.OVER, Status.DONE
        return False

    def _reject(self) -> bool:
        self._state, self._status = _State.OVER, Status.REJECTED
        return False


def _compiled(pattern: str, names: str) -> regex.Pattern[str]:
    return regex.compile(pattern.replace("NAME", names))


def _may_become(pattern: regex.Pattern[str], text: str) -> bool:
    """Whether `text` matches, or more text could make it match."""
    return pattern.match(text, partial=True) is not None


def _call_in(source: str) -> tuple[str, str | None, str] | None:
    """Name, id and JSON text of the arguments of a call that is one JSON object; None if it is not one."""
    try:
        call = json.loads(source, strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict):
        return None
    function = call.get("function")
    inner: dict[str, Any] = function if isinstance(function, dict) else call
    name = inner.get("name", function)
    arguments = inner.get("arguments", inner.get("parameters"))
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments, strict=False)
        except (ValueError, RecursionError):
            return None
        text = arguments
    else:
        parsed = {} if arguments is None else arguments
        text = json.dumps(parsed, ensure_ascii=False)
    if not isinstance(name, str) or not isinstance(parsed, dict):
        return None
    call_id = call.get("id")
    return name, call_id if isinstance(call_id, str) else None, text
