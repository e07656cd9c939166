"""Tool calls in the text of an answer."""

from __future__ import annotations

from mtplx.runtime.server.output.dialect import Dialect, Reader, Reading, Status, Tools
from mtplx.runtime.server.output.pieces import (
    CallClosed,
    CallOpened,
    Consumed,
    Piece,
    Text,
    held_back,
)

MAX_MALFORMED = 50
"""After so many candidates that came to nothing, the rest of an answer is text: each is scanned more than once."""

# Readers are fed so much at a time: most candidates that are none are rejected by their first characters.
_CHUNK = 1024


class CallScanner:
    """Finds the calls in a growing text.

    A start marker opens a candidate unless it stands right behind a backtick. A candidate that turns out not to be a
    call of an offered tool is ordinary text again, and what it holds is scanned once more. White space around a call
    belongs to the call. Every character comes out once, in order: as Text or as Consumed.

    With `max_calls` the answer is finished where one call more begins; what follows is consumed.
    """

    def __init__(self, dialect: Dialect, tools: Tools, *, max_calls: int | None = None) -> None:
        self._dialect = dialect
        self._tools = tools
        self._max_calls = max_calls
        self._reader: Reader | None = None
        # `_text[_given:]` was not given out yet. A candidate begins there; its marker ends at `_marked`, and its
        # reader knows the text up to `_read`.
        self._text = ""
        self._given = self._marked = self._read = 0
        self._last = ""
        self._is_behind_call = False
        self._is_untouched = True
        self.num_calls = 0
        self.num_malformed = 0
        self.is_finished = False

    def feed(self, text: str) -> list[Piece]:
        """The pieces that `text` completes."""
        pieces: list[Piece] = []
        if self._is_untouched and text:
            self._is_untouched = False
            if self._dialect.opens_at_start:
                self._open(0)
        self._text += text
        self._scan(pieces)
        self._text = self._text[self._given :]
        self._marked -= self._given
        self._read -= self._given
        self._given = 0
        return pieces

    def finish(self) -> list[Piece]:
        """What was held back; a candidate that is not complete is text."""
        pieces: list[Piece] = []
        while self._reader is not None:
            self._carry_out(self._reader.finish(), pieces)
            self._scan(pieces)
        self._give_text(len(self._text), pieces)
        return pieces

    def _scan(self, pieces: list[Piece]) -> None:
        """Go through the text, as far as it can be decided."""
        goes_on = True
        while goes_on:
            if self.is_finished:
                self._consume(len(self._text), pieces)
                goes_on = False
            elif self._reader is not None:
                chunk = self._text[self._read : self._read + _CHUNK]
                self._read += len(chunk)
                self._carry_out(self._reader.feed(chunk), pieces)
                goes_on = self._reader is None or self._read < len(self._text)
            elif self.num_malformed >= MAX_MALFORMED:
                self._give_text(len(self._text), pieces)
                goes_on = False
            else:
                goes_on = self._look_for_marker(pieces)

    def _look_for_marker(self, pieces: list[Piece]) -> bool:
        """Give out the text before a marker and begin a candidate there; False where no marker is."""
        start = self._dialect.start
        at = self._text.find(start, self._given)
        if at < 0:
            end = len(self._text) - held_back(self._text[self._given :], start)
            self._give_text(self._end_of_words(end), pieces)
            if self._is_behind_call:
                self._consume(end, pieces)
            return False
        if (self._text[at - 1] if at > self._given else self._last) == "`":
            self._give_text(at + len(start), pieces)
            return True
        self._give_text(self._end_of_words(at), pieces)
        self._open(at + len(start))
        return True

    def _end_of_words(self, end: int) -> int:
        """Where the white space before `end` begins."""
        return self._given + len(self._text[self._given : end].rstrip())

    def _open(self, marked: int) -> None:
        """Begin a candidate whose marker, white space before it included, ends at `marked`."""
        self._reader = self._dialect.reader(self._tools)
        self._marked = self._read = marked

    def _carry_out(self, reading: Reading, pieces: list[Piece]) -> None:
        """Do what the reader says about the text up to `_read`."""
        match reading.status:
            case Status.REJECTED:
                # The marker is text, and what stands behind it is scanned again.
                self.num_malformed += self._reader is not None and self._reader.has_begun
                self._reader = None
                self._give_text(self._marked, pieces)
            case Status.READING | Status.DONE:
                self._consume(self._read - reading.held, pieces)
                self._is_behind_call = True
                if reading.status is Status.DONE:
                    self._reader = None
                self._pass_on(reading, pieces)

    def _pass_on(self, reading: Reading, pieces: list[Piece]) -> None:
        for event in reading.events:
            if isinstance(event, CallOpened):
                if self.num_calls == self._max_calls:
                    self.is_finished, self._reader = True, None
                    return
                self.num_calls += 1
            elif isinstance(event, CallClosed) and not event.is_complete:
                self.num_malformed += 1
            pieces.append(event)

    def _give_text(self, end: int, pieces: list[Piece]) -> None:
        """The text up to `end`, without white space that belongs to a call before it."""
        if self._is_behind_call:
            text = self._text[self._given : end]
            self._consume(self._given + len(text) - len(text.lstrip()), pieces)
        text = self._text[self._given : end]
        if text:
            self._is_behind_call = False
            self._last = text[-1]
            self._given = end
            pieces.append(Text(text))

    def _consume(self, end: int, pieces: list[Piece]) -> None:
        """Text up to `end` that is not shown."""
        text = self._text[self._given : end]
        if text:
            self._given = end
            pieces.append(Consumed(text))
