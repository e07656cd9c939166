"""Scripted answers: a tokenizer whose tokens are single bytes, and bursts of token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from transformers import PreTrainedTokenizerFast

from tests.support.tiny_tokenizer import (
    CHAT_TEMPLATE,
    END_OF_TEXT,
    TURN_END,
    UNKNOWN,
    make_tokenizer,
    special_ids,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

BYTE_VOCABULARY = 260
END_IDS = tuple(special_ids(BYTE_VOCABULARY)[token] for token in (TURN_END, END_OF_TEXT))


class ScriptedTokenizer(PreTrainedTokenizerFast):  # type: ignore[misc]
    """A real byte-level tokenizer in which token ``b`` is byte ``b``; end tokens come after 255."""

    def __init__(self) -> None:
        super().__init__(
            tokenizer_object=make_tokenizer(BYTE_VOCABULARY),
            eos_token=TURN_END,
            pad_token=END_OF_TEXT,
            unk_token=UNKNOWN,
            clean_up_tokenization_spaces=False,
        )
        self.chat_template = CHAT_TEMPLATE


def byte_tokens(text: str) -> list[int]:
    """The ids `ScriptedTokenizer` gives to a text: its UTF-8 bytes."""
    return list(text.encode())


def bursts(ids: Sequence[int], width: int) -> Iterator[tuple[int, ...]]:
    """``ids`` in groups of ``width``, as speculative rounds deliver them."""
    for start in range(0, len(ids), width):
        yield tuple(ids[start : start + width])


def scripted_logits(ids: Sequence[int], vocab: int, *, margin: float = 20.0) -> NDArray[np.float32]:
    """Rows ``[len(ids), vocab]`` whose greedy choice is ``ids``, by ``margin``."""
    rows = np.zeros((len(ids), vocab), np.float32)
    rows[np.arange(len(ids)), list(ids)] = margin
    return rows
