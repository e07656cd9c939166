"""Twenty short prompts for tests which compare token ids: code, prose and chat."""

from __future__ import annotations

CODE: tuple[str, ...] = (
    "def add(a, b):\n    return",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(",
    "import os\n\nfor name in os.listdir('.'):\n    if name.endswith(",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "with open(path) as f:\n    for line in f:\n        key, value = ",
    "try:\n    value = int(text)\nexcept ValueError:\n",
    "numbers = [3, 1, 2]\nprint(sorted(numbers, ",
    "@dataclass\nclass Point:\n    x: float\n    y: float\n\n    def norm(self):\n",
)

PROSE: tuple[str, ...] = (
    "The old lighthouse keeper climbed the stairs and",
    "Water boils at a lower temperature on a mountain because",
    "Once upon a time, in a village by the sea,",
    "The three most important things about a good test are",
    "Rain fell all night; in the morning the river",
    "A list of colours: red, green, blue,",
)

CHAT: tuple[str, ...] = (
    "Write a function that reverses a string.",
    "What does the yield keyword do?",
    "How do I read a file line by line?",
    "Write a class for a bank account with deposit and withdraw.",
    "Explain what a decorator is, in one sentence.",
    "Sort a list of dictionaries by the key 'age'.",
)

PROMPTS: tuple[str | list[dict[str, str]], ...] = (
    *CODE,
    *PROSE,
    *([{"role": "user", "content": text}] for text in CHAT),
)
"""Raw text continues as it is; a list of messages goes through the chat template."""
