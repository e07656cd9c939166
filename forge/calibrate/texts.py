"""Text to calibrate with: code, prose and chats of our own, or a file of the user's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import TokenizerMissingError, UsageError
from mtplx.runtime.loading.tokenizer import encode, render_chat
from mtplx.runtime.model import Model

_PLAIN = (("code.txt", "code"), ("other_code.txt", "code"), ("prose.txt", "prose"))
_CHATS = "chats.json"
# More text costs time and settles nothing that this much leaves open.
_MOST_TOKENS = 8192


class Text(list[int]):
    """The token ids of one text; `domain` says what kind of text it is."""

    def __init__(self, tokens: Iterable[int], domain: str) -> None:
        super().__init__(tokens)
        self.domain = domain


def calibration_texts(model: Model) -> list[Text]:
    """The shipped texts as `model` reads them; chats go through its template where it has one.

    Raises:
        TokenizerMissingError: the model has no tokenizer.
        ChatTemplateMissingError: its chat template refuses a plain conversation.
    """
    tokenizer = _tokenizer(model)
    folder = files("mtplx.forge.calibrate")
    texts = [
        Text(encode(tokenizer, (folder / name).read_text(encoding="utf-8")), domain)
        for name, domain in _PLAIN
    ]
    chats: list[list[dict[str, Any]]] = json.loads((folder / _CHATS).read_text(encoding="utf-8"))
    return texts + [Text(_chat(model, chat), "chat") for chat in chats]


def texts_from_file(model: Model, path: Path) -> list[Text]:
    """The first 8192 tokens of a plain text file.

    Raises:
        UsageError: the file is absent, empty or not UTF-8 text.
        TokenizerMissingError: the model has no tokenizer.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: cannot be read as text: {error}", hint="give a UTF-8 text file"
        ) from error
    tokens = encode(_tokenizer(model), text)[:_MOST_TOKENS] if text.strip() else []
    if not tokens:
        raise UsageError(f"{path} is empty", hint="give a file of some thousand words")
    return [Text(tokens, path.name)]


def describe(texts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What a calibration was measured on: `sha256` of the token ids, number of `tokens`, and `domains`."""
    ids = json.dumps([list(text) for text in texts], separators=(",", ":"))
    return {
        "sha256": hashlib.sha256(ids.encode("ascii")).hexdigest(),
        "tokens": sum(len(text) for text in texts),
        "domains": sorted({text.domain if isinstance(text, Text) else "user" for text in texts}),
    }


def _chat(model: Model, messages: list[dict[str, Any]]) -> list[int]:
    if not model.tokenizer.has_chat_template:
        return encode(
            model.tokenizer, "\n\n".join(f"{m['role']}: {m['content']}" for m in messages)
        )
    *before, reply = messages
    asked = render_chat(model.tokenizer, before, model.path)
    return asked + list(model.tokenizer.encode(reply["content"], add_special_tokens=False))


def _tokenizer(model: Model) -> Any:
    if model.tokenizer is None:
        raise TokenizerMissingError(
            f"{model.path} has no tokenizer to calibrate with",
            hint="add tokenizer.json and tokenizer_config.json",
        )
    return model.tokenizer
