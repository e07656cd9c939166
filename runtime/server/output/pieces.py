"""Pieces of a model's text on their way to the client, in the order in which they were written."""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """Text of the answer."""

    text: str


class Reasoning(NamedTuple):
    """Text between the model's reasoning markers."""

    text: str


class Consumed(NamedTuple):
    """Text that clients don't see as such: a marker, or the source of a tool call."""

    text: str


class CallOpened(NamedTuple):
    """A call begins; `id` is None where the dialect has no ids."""

    name: str
    id: str | None = None


class CallArguments(NamedTuple):
    """More of the JSON text of the arguments of the call that was opened last."""

    text: str


class CallClosed(NamedTuple):
    """The call that was opened last ends; its arguments may have stayed incomplete."""

    is_complete: bool


CallEvent = CallOpened | CallArguments | CallClosed
Piece = Text | Reasoning | Consumed | CallEvent


def held_back(text: str, marker: str) -> int:
    """Length of the longest end of `text` that begins `marker` without completing it."""
    for size in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0
