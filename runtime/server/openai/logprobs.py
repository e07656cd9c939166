"""Log-probabilities in the shapes of this API. Every token of the answer has an entry, its end token too."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from mtplx.runtime.sampling.logprobs import TokenLogprobs
from mtplx.runtime.server.openai.tokens import TokenTexts


def chat_logprobs(texts: TokenTexts, logprobs: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
    """The entries of a chat completion or a response."""
    return [
        {
            **_entry(texts, one.token_id, one.logprob),
            "top_logprobs": [_entry(texts, *likely) for likely in one.top],
        }
        for one in logprobs
    ]


def _entry(texts: TokenTexts, token: int, logprob: float) -> dict[str, Any]:
    raw = texts.bytes_of(token)
    return {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}


class CompletionLogprobs:
    """The lists of a text completion, whose offsets count characters from the beginning of the text."""

    def __init__(self, texts: TokenTexts, offset: int = 0) -> None:
        self._texts = texts
        self._offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """The lists for the next tokens. Of tokens with the same text the likeliest is told."""
        lists: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for one in logprobs:
            lists["tokens"].append(self._texts.text_of(one.token_id))
            lists["token_logprobs"].append(one.logprob)
            lists["text_offset"].append(self._offset)
            self._offset += len(self._decoder.decode(self._texts.bytes_of(one.token_id)))
            top: dict[str, float] = {}
            for likely in one.top:
                top.setdefault(self._texts.text_of(likely.token_id), likely.logprob)
            lists["top_logprobs"].append(top)
        return lists
