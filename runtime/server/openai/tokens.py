"""Tokens as text and as bytes, for log-probabilities."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from transformers.convert_slow_tokenizer import bytes_to_unicode

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

# SentencePiece's sign for a space.
_SPACE: Final = "\u2581"
_BYTE_OF: Final[dict[str, int]] = {text: byte for byte, text in bytes_to_unicode().items()}


class TokenTexts:
    """The text of each token of one tokenizer.

    A token may be a part of a character, so its bytes are exact and its text is not: there, U+FFFD stands for what is
    no character by itself.
    """

    def __init__(self, tokenizer: TokenizerWrapper) -> None:
        self._tokenizer = tokenizer
        self._is_byte_level = "ByteLevel" in _decoders(tokenizer)
        self._added = frozenset(tokenizer.added_tokens_decoder)
        self.bytes_of = lru_cache(maxsize=65_536)(self._bytes_of)

    def text_of(self, token: int) -> str:
        """The text of a token."""
        return self.bytes_of(token).decode("utf-8", "replace")

    def _bytes_of(self, token: int) -> bytes:
        """The bytes that a token adds to the answer; of an end token the name."""
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:
            # Rows that models have beyond their tokenizer's vocabulary.
            return b""
        if token in self._added:
            return str(piece).encode()
        if self._is_byte_level and all(character in _BYTE_OF for character in piece):
            return bytes(_BYTE_OF[character] for character in piece)
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes.fromhex(piece[3:5])
        return str(piece).replace(_SPACE, " ").encode()


@lru_cache(maxsize=4)
def texts_of(tokenizer: TokenizerWrapper) -> TokenTexts:
    """The texts of a tokenizer's tokens, made once."""
    return TokenTexts(tokenizer)


def _decoders(tokenizer: TokenizerWrapper) -> set[str]:
    """The types of the steps that make text of pieces."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.decoder is None:
        return set()
    settings: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    steps = settings.get("decoders", [settings])
    return {step["type"] for step in steps}
