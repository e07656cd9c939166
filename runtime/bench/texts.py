"""The prompts of the suite as a model reads them, and long prompts made of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from mtplx.contracts.inspection import Inspection
from mtplx.runtime.loading.tokenizer import encode, load_tokenizer, render_chat
from mtplx.runtime.tuning.prompts import MOST_PROMPTS, SUITE, choose_prompts

# What a long prompt ends with: its answer is then that to this prompt of the suite.
ENDING = "code-1"


@dataclass(frozen=True, slots=True)
class Texts:
    """Token ids of the suite: `prompts` by name, and `passages` without special tokens to fill long prompts.

    `note` says what could not be rendered as it should.
    """

    prompts: dict[str, list[int]]
    passages: list[list[int]]
    note: str | None

    def choose(self, per_domain: int) -> dict[str, list[int]]:
        """The first prompts of each domain."""
        return {name: self.prompts[name] for name in choose_prompts(per_domain)}

    def long_prompt(self, length: int) -> list[int]:
        """`length` tokens that end with a prompt of the suite."""
        return long_prompt(self.passages, self.prompts[ENDING], length)


def read_texts(inspection: Inspection) -> Texts:
    """Encode the whole suite.

    Raises:
        TokenizerMissingError: there is no tokenizer.
        ChatTemplateMissingError: the chat template refuses a plain question.
    """
    tokenizer = load_tokenizer(inspection.path, inspection.eos_token_ids)
    has_template = bool(tokenizer.has_chat_template)

    def ids(text: str, raw: bool) -> list[int]:
        if raw or not has_template:
            return encode(tokenizer, text)
        return render_chat(tokenizer, [{"role": "user", "content": text}], inspection.path)

    return Texts(
        prompts={
            name: ids(prompt.text, prompt.raw)
            for name, prompt in choose_prompts(MOST_PROMPTS).items()
        },
        passages=[
            list(tokenizer.encode(f"{prompt.text}\n\n", add_special_tokens=False))
            for prompts in SUITE.values()
            for prompt in prompts
        ],
        note=None if has_template else "no chat template: chat prompts were sent as they are",
    )


def long_prompt(passages: Sequence[Sequence[int]], ending: Sequence[int], length: int) -> list[int]:
    """`length` tokens: the passages in another order each time around, then `ending`.

    A prompt shorter than its ending is the last part of it.
    """
    order = random.Random(length)
    filler: list[int] = []
    while any(passages) and len(filler) + len(ending) < length:
        for passage in order.sample(passages, len(passages)):
            filler += passage
    return [*filler[: max(length - len(ending), 0)], *ending][-length:]
