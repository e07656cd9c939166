"""Prompts that speed and acceptance are measured on: ten each of code, prose and chat."""

from __future__ import annotations

from typing import NamedTuple


class BenchPrompt(NamedTuple):
    """A prompt of one domain; `raw` prompts go without the chat template."""

    domain: str
    text: str
    raw: bool


_CODE = (
    "import json\nimport os\n\n\ndef load_settings(path):\n",
    "class RingBuffer:\n    def __init__(self, size):\n        self.items = [None] * size\n"
    "        self.start = 0\n\n    def append(self, item):\n",
    "import argparse\n\n\ndef main():\n    parser = argparse.ArgumentParser()\n"
    '    parser.add_argument("folder")\n',
    "def test_an_empty_basket_costs_nothing():\n    basket = Basket()\n    assert basket.total == 0\n"
    "\n\ndef test_two_apples_cost_twice_as_much_as_one():\n",
    "from dataclasses import dataclass\n\n\n@dataclass\nclass Reading:\n    station: str\n"
    "    celsius: float\n\n    @property\n    def fahrenheit(self):\n",
    "def merge(left, right):\n    merged = []\n    i = j = 0\n"
    "    while i < len(left) and j < len(right):\n",
    "import sqlite3\n\nconnection = sqlite3.connect('library.db')\ncursor = connection.cursor()\n"
    "cursor.execute('CREATE TABLE books (title TEXT, year INTEGER)')\n",
    "function groupByYear(photos) {\n  const groups = new Map();\n  for (const photo of photos) {\n",
    "#include <stdio.h>\n\nint count_lines(FILE *file) {\n    int lines = 0;\n    int c;\n",
    "SELECT customers.name, SUM(orders.price) AS spent\nFROM customers\nJOIN orders ON",
)

_PROSE = (
    '"""A short guide to the library.\n\nThe library reads',
    "When the last bus had gone, the square became so quiet that the fountain",
    "Bread rises because yeast turns sugar into gas. The dough has to be kneaded so that",
    "Minutes of the meeting of 4 March\n\nPresent were the treasurer, the secretary and",
    "The river divides the town into two halves which have never quite agreed. In the north",
    "To change the tyre of a bicycle, first turn it upside down. Then",
    "Dear neighbours,\n\nnext week the water will be turned off for a morning, because",
    "A glacier is a river of ice. It begins high in the mountains, where snow",
    "My grandmother kept every letter she was ever sent. They lay in a tin box",
    "The report compares three ways to heat a small house. The first of them,",
)

_CHAT = (
    "Write a function that counts the words of a text file.",
    "Explain to a ten-year-old why the moon changes its shape.",
    "What is the difference between a list and a tuple in Python?",
    "Suggest a name for a bakery next to a railway station, and say why you like it.",
    "My plant has yellow leaves. What could be the reason?",
    "Write a Python class for a stopwatch with start, stop and reset.",
    "Plan a rainy Sunday for two adults and a dog.",
    "Translate 'where is the next pharmacy' into French, Spanish and Italian.",
    "How do I undo the last commit in git without losing my changes?",
    "Write a polite message that cancels an appointment at the dentist.",
)

SUITE: dict[str, tuple[BenchPrompt, ...]] = {
    domain: tuple(BenchPrompt(domain, text, raw) for text in texts)
    for domain, texts, raw in (
        ("code", _CODE, True),
        ("prose", _PROSE, True),
        ("chat", _CHAT, False),
    )
}
"""All prompts by domain."""

MOST_PROMPTS = min(map(len, SUITE.values()))
"""So many prompts every domain has."""

PROMPTS: tuple[BenchPrompt, ...] = tuple(prompts[0] for prompts in SUITE.values())
"""The first prompt of each domain."""


def choose_prompts(per_domain: int) -> dict[str, BenchPrompt]:
    """The first `per_domain` prompts of each domain by name: `code-1`, `code-2`, ..."""
    return {
        f"{domain}-{number}": prompt
        for domain, prompts in SUITE.items()
        for number, prompt in enumerate(prompts[:per_domain], start=1)
    }


def domain_of(name: str) -> str:
    """The domain of a prompt called `name`."""
    return name.rpartition("-")[0]
