"""Where an answer ends: end tokens, stop strings, the token budget."""

from __future__ import annotations

from collections.abc import Sequence

from mtplx.runtime.decode.text import TextStream
from mtplx.runtime.sampling.logprobs import TokenLogprobs


class StopStrings:
    """Holds back text that may be the beginning of a stop string; `hit` is the one that was reached."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.hit: str | None = None

    def add(self, text: str) -> tuple[str, bool]:
        """The text that can be shown now, and whether a stop string was reached (it is not shown)."""
        self._held += text
        places = [(self._held.find(stop), stop) for stop in self._stops]
        hits = [(at, stop) for at, stop in places if at >= 0]
        if hits:
            at, self.hit = min(hits)
            shown, self._held = self._held[:at], ""
            return shown, True
        keep = self._longest_beginning()
        shown, self._held = (
            self._held[: len(self._held) - keep],
            self._held[len(self._held) - keep :],
        )
        return shown, False

    def finish(self) -> str:
        """Text that was held back and turned out not to be a stop string."""
        shown, self._held = self._held, ""
        return shown

    def _longest_beginning(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:size]):
                    longest = size
                    break
        return longest


class Answer:
    """The answer so far: tokens kept, text shown, and why it ended.

    `keep` is asked by each round how many of its tokens belong to the answer; an end token belongs to it but is not
    shown. `logprobs` has an entry for each token where they were asked for.
    """

    def __init__(
        self,
        stream: TextStream | None,
        *,
        max_tokens: int,
        end_tokens: frozenset[int],
        stops: Sequence[str],
    ) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.text = ""
        self.finish_reason: str | None = None
        self._stream = stream
        self._stops = StopStrings(stops)
        self._max_tokens = max_tokens
        self._end_tokens = end_tokens
        self._shown = 0

    @property
    def stop_sequence(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return self._stops.hit

    @property
    def room(self) -> int:
        """Tokens that may still come."""
        return self._max_tokens - len(self.tokens)

    def keep(self, tokens: list[int]) -> int:
        """Take the tokens that belong to the answer; returns how many."""
        for number, token in enumerate(tokens, start=1):
            self.tokens.append(token)
            if token in self._end_tokens:
                self._end("stop")
            elif self._show(self._stream.add(token) if self._stream else ""):
                self.finish_reason = "stop"
            elif self.room == 0:
                self._end("length")
            if self.finish_reason is not None:
                return number
        return len(tokens)

    def interrupt(self) -> None:
        """End the answer where it is."""
        if self.finish_reason is None:
            self._end("interrupted")

    def new_text(self) -> str:
        """Text shown since the last call."""
        piece = self.text[self._shown :]
        self._shown = len(self.text)
        return piece

    def _show(self, text: str) -> bool:
        shown, stopped = self._stops.add(text)
        self.text += shown
        return stopped

    def _end(self, reason: str) -> None:
        self.finish_reason = reason
        tail = self._stream.finish() if self._stream else ""
        if self._show(tail):
            self.finish_reason = "stop"
        else:
            self.text += self._stops.finish()
