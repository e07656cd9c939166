"""Reasoning apart from the answer, by the model's own markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mtplx.runtime.server.output.pieces import Consumed, Piece, Reasoning, Text, held_back

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

# Markers of templates whose tokenizers have no single token for them.
_TEXT_MARKERS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
)


class ReasoningMarkers(NamedTuple):
    """What begins and ends reasoning in the model's text."""

    start: str
    end: str


def reasoning_markers(tokenizer: TokenizerWrapper) -> ReasoningMarkers | None:
    """The markers of the tokenizer, or those its chat template writes; None for a model without any."""
    if tokenizer.think_start is not None and tokenizer.think_end is not None:
        return ReasoningMarkers(tokenizer.think_start, tokenizer.think_end)
    template = tokenizer.chat_template
    texts = list(template.values()) if isinstance(template, dict) else [template or ""]
    for start, end in _TEXT_MARKERS:
        if any(start in text and end in text for text in texts):
            return ReasoningMarkers(start, end)
    return None


class ReasoningSplitter:
    """Splits a growing text into reasoning and answer.

    Reasoning is what stands between the markers at the very beginning of the text: an opening marker later on is text
    of the answer, and a closing one that stands in a code span is text of the reasoning. With `has_begun` the prompt
    held the opening marker. Every character comes out once: markers as Consumed.
    """

    def __init__(self, markers: ReasoningMarkers | None, *, has_begun: bool) -> None:
        self._markers = markers
        self._held = ""
        self._before = ""
        self._is_open = has_begun and markers is not None
        self._is_over = markers is None

    @property
    def is_open(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        return self._is_open

    def feed(self, text: str) -> list[Piece]:
        """The pieces that `text` completes."""
        if self._is_over or self._markers is None:
            return [Text(text)] if text else []
        self._held += text
        pieces: list[Piece] = []
        if not self._is_open:
            self._look_for_start(self._markers, pieces)
        if self._is_open:
            self._look_for_end(self._markers, pieces)
        return pieces

    def finish(self) -> list[Piece]:
        """What was held back."""
        held, self._held = self._held, ""
        if not held:
            return []
        if not self._is_open:
            return [Text(held)]
        end = self._markers.end if self._markers else ""
        # A closing marker waited for the character behind it, and there is none.
        if held.endswith(end):
            self._is_open = False
            inside = held.removesuffix(end)
            return [*([Reasoning(inside)] if inside else []), Consumed(end)]
        return [Reasoning(held)]

    def _look_for_start(self, markers: ReasoningMarkers, pieces: list[Piece]) -> None:
        written = self._held.lstrip()
        if written.startswith(markers.start):
            size = len(self._held) - len(written) + len(markers.start)
            pieces.append(Consumed(self._take(size)))
            self._is_open = True
        elif not markers.start.startswith(written):
            self._is_over = True
            pieces.append(Text(self._take(len(self._held))))

    def _look_for_end(self, markers: ReasoningMarkers, pieces: list[Piece]) -> None:
        at = self._held.find(markers.end)
        while at >= 0:
            behind = at + len(markers.end)
            before = self._held[at - 1] if at else self._before
            if before == "`" and behind == len(self._held):
                self._give(at - 1 if at else 0, pieces)
                return
            if before != "`" or self._held[behind] != "`":
                self._give(at, pieces)
                pieces.append(Consumed(self._take(len(markers.end))))
                self._is_open, self._is_over = False, True
                if self._held:
                    pieces.append(Text(self._take(len(self._held))))
                return
            at = self._held.find(markers.end, behind)
        self._give(len(self._held) - held_back(self._held, markers.end), pieces)

    def _give(self, size: int, pieces: list[Piece]) -> None:
        if size:
            text = self._take(size)
            self._before = text[-1]
            pieces.append(Reasoning(text))

    def _take(self, size: int) -> str:
        taken, self._held = self._held[:size], self._held[size:]
        return taken
