"""Which tokens of an answer are the text of its message."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from mtplx.runtime.sampling.logprobs import TokenLogprobs
from mtplx.runtime.server.answering import Thinking
from mtplx.runtime.server.openai.logprobs import chat_logprobs
from mtplx.runtime.server.openai.tokens import TokenTexts


class TextLogprobs:
    """Hands out the entries of the tokens that text is made of, as the text comes.

    A response has log-probabilities in its messages only. What the model thought is left out by its markers; behind a
    call of a function, whose tokens are no text, text can no longer be told from it and has no entries.
    """

    def __init__(self, texts: TokenTexts, thinking: Thinking | None) -> None:
        self._texts = texts
        self._start = () if thinking is None else thinking.start
        self._end = () if thinking is None else thinking.end
        self._is_thinking = thinking is not None and thinking.has_begun
        self._seen: list[int] = []
        self._pending: deque[tuple[int, dict[str, Any]]] = deque()
        self._taken = 0
        self._bytes = 0
        self._has_ended = False

    def take(self, logprobs: Sequence[TokenLogprobs]) -> None:
        """More tokens."""
        if self._has_ended:
            return
        entries = chat_logprobs(self._texts, logprobs)
        for one, entry in zip(logprobs, entries, strict=True):
            self._seen.append(one.token_id)
            self._pending.append((len(self._texts.bytes_of(one.token_id)), entry))
            if len(self._seen) == len(self._start) and tuple(self._seen) == self._start:
                self._is_thinking = True
            if self._is_thinking:
                # Markers and what stands between them are no text.
                self._pending.clear()
                self._is_thinking = tuple(self._seen[-len(self._end) :]) != self._end

    def of(self, text: str) -> list[dict[str, Any]]:
        """The entries of the tokens that end within the text so far, of which `text` is new."""
        self._bytes += len(text.encode())
        entries = []
        while self._pending and self._taken + self._pending[0][0] <= self._bytes:
            size, entry = self._pending.popleft()
            self._taken += size
            entries.append(entry)
        return entries

    def end(self) -> None:
        """A call has begun."""
        self._has_ended = True
        self._pending.clear()
