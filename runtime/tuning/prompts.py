"""Prompts that speed is measured on: one each of code, prose and chat."""

from __future__ import annotations

from typing import NamedTuple


class BenchPrompt(NamedTuple):
    """A prompt of one domain; `raw` prompts go without the chat template."""

    domain: str
    text: str
    raw: bool


PROMPTS: tuple[BenchPrompt, ...] = (
    BenchPrompt("code", "import json\nimport os\n\n\ndef load_settings(path):\n", raw=True),
    BenchPrompt("prose", '"""A short guide to the library.\n\nThe library reads', raw=True),
    BenchPrompt("chat", "Write a function that counts the words of a text file.", raw=False),
)
