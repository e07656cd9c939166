"""What exactness is tested on: three prompts each of code, prose and chat."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from mtplx.contracts.errors import UsageError
from mtplx.runtime.model import Model
from mtplx.runtime.tuning.prompts import PROMPTS


class VerifyPrompt(NamedTuple):
    """A named prompt of one domain; `raw` prompts go without the chat template."""

    name: str
    domain: str
    text: str
    raw: bool


class EncodedPrompt(NamedTuple):
    """A prompt as one model reads it; `sha256` is that of the text."""

    name: str
    domain: str
    sha256: str
    ids: list[int]


_OWN = (
    VerifyPrompt(
        "code-2",
        "code",
        "class Shelf:\n    def __init__(self, width):\n        self.width = width\n"
        "        self.books = []\n\n    def add(self, book):\n        if",
        raw=True,
    ),
    VerifyPrompt(
        "code-3",
        "code",
        "def test_the_parser_refuses_an_empty_line():\n    parser = Parser()\n    with",
        raw=True,
    ),
    VerifyPrompt(
        "prose-2",
        "prose",
        "The ferry left the harbour a little after six. Most of the passengers",
        raw=True,
    ),
    VerifyPrompt(
        "prose-3",
        "prose",
        "Three things decide how fast a bicycle rolls: the tyres, the weight and",
        raw=True,
    ),
    VerifyPrompt("chat-2", "chat", "Why do leaves turn red and yellow in autumn?", raw=False),
    VerifyPrompt(
        "chat-3", "chat", "List five steps to make a kitchen knife sharp again.", raw=False
    ),
)

VERIFY_PROMPTS: tuple[VerifyPrompt, ...] = (
    *(VerifyPrompt(f"{prompt.domain}-1", *prompt) for prompt in PROMPTS),
    *_OWN,
)
"""The first prompt of each domain is the one that speed is measured on."""

PROMPT_NAMES: tuple[str, ...] = tuple(prompt.name for prompt in VERIFY_PROMPTS)


def encode_prompts(model: Model, names: Sequence[str]) -> list[EncodedPrompt]:
    """The prompts called `names`; those for chat go through the template where the model has one.

    Raises:
        UsageError: there is no prompt of that name.
        TokenizerMissingError: the model has no tokenizer.
        ChatTemplateMissingError: its template refuses a plain question.
    """
    known = {prompt.name: prompt for prompt in VERIFY_PROMPTS}
    for name in names:
        if name not in known:
            raise UsageError(
                f"There is no prompt called {name!a}; known are {', '.join(known)}.",
                hint="Evidence of another version of mtplx is replayed with that version.",
            )
    return [_encode(model, known[name]) for name in names]


def one_of_each_domain(prompts: Sequence[EncodedPrompt]) -> list[EncodedPrompt]:
    """The first prompt of every domain."""
    return list({prompt.domain: prompt for prompt in reversed(prompts)}.values())


def _encode(model: Model, prompt: VerifyPrompt) -> EncodedPrompt:
    has_template = model.tokenizer is not None and model.tokenizer.has_chat_template
    ids = model.encode_prompt(prompt.text, raw=prompt.raw or not has_template)
    sha256 = hashlib.sha256(prompt.text.encode()).hexdigest()
    return EncodedPrompt(prompt.name, prompt.domain, sha256, ids)
