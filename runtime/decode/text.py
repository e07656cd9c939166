"""Tokens to text as they come: no character is split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_REPLACEMENT = "\ufffd"


class Decoder(Protocol):
    """The one method of a tokenizer that is needed here."""

    def decode(self, token_ids: Sequence[int], /, *, clean_up_tokenization_spaces: bool) -> str:
        """Text of `token_ids`."""


class TextStream:
    """Text of a growing list of tokens, given out piece by piece.

    The pieces joined, `finish` included, are the decode of all tokens. A piece that ends in a replacement character
    waits for the next token, which may complete the character. Each decode starts one piece early, so that
    tokenizers which strip the space of a first token do it in both texts that are compared
    (huggingface/text-generation-inference `server/text_generation_server/models/model.py` does the same).
    """

    def __init__(self, tokenizer: Decoder) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._start = 0
        self._read = 0

    def add(self, token: int) -> str:
        """The text that `token` completes, possibly empty."""
        self._tokens.append(token)
        text = self._decode(self._start, None)
        if text.endswith(_REPLACEMENT):
            return ""
        return self._take(text)

    def finish(self) -> str:
        """What has not been given out yet: an incomplete character is one replacement character."""
        if self._read == len(self._tokens):
            return ""
        return self._take(self._decode(self._start, None))

    def _take(self, text: str) -> str:
        shown = self._decode(self._start, self._read)
        self._start, self._read = self._read, len(self._tokens)
        return text[len(shown) :]

    def _decode(self, start: int, stop: int | None) -> str:
        return self._tokenizer.decode(self._tokens[start:stop], clean_up_tokenization_spaces=False)
