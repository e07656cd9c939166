"""JSON that survives being read, changed and written again, whoever wrote it."""

import math
from collections.abc import Iterator
from typing import Any

MAX_DEPTH = 32
"""Levels of nesting; contracts have a handful, and serialisers end at a few hundred."""


def check_plain(value: Any) -> None:
    """Raise ValueError with a one-line reason for what JSON text holds and JSON values should not.

    NaN and infinite numbers, text with half of a surrogate pair, nesting beyond `MAX_DEPTH`.
    """
    for depth, part in _walk(value):
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(part, float) and not math.isfinite(part):
            raise ValueError(f"the number {part} is not finite")
        if isinstance(part, str) and not _is_text(part):
            raise ValueError(f"{part[:40]!a} is not text that UTF-8 can hold")


def _walk(value: Any) -> Iterator[tuple[int, Any]]:
    """Every value and key inside `value` with its depth; no recursion, the input may be deep."""
    waiting = [(0, value)]
    while waiting:
        depth, part = waiting.pop()
        yield depth, part
        if isinstance(part, dict):
            waiting += [(depth + 1, item) for pair in part.items() for item in pair]
        elif isinstance(part, list):
            waiting += [(depth + 1, item) for item in part]


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
