"""A grammar holds with drafts as without: masked rows, masked drafts, committed tokens only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from scipy.stats import chisquare

from mtplx.contracts.errors import InternalError
from mtplx.runtime.model import Model
from mtplx.runtime.sampling.constraint import Mask
from tests.exact.scripted_heads import with_script
from tests.support.tiny_families import FamilyName
from tests.support.tiny_tokenizer import TURN_END, special_ids

PROMPT = [5, 9, 12, 30]
VOCAB = 64
END = special_ids(VOCAB)[TURN_END]
# Low enough that a random model prefers some tokens clearly.
SHARP = 0.5


class Alternating:
    """Odd tokens follow even ones and the reverse, for `length` tokens; then only the end token."""

    def __init__(self, length: int, wanted: Sequence[int] = range(3, VOCAB)) -> None:
        self.committed: list[int] = []
        self._length = length
        self._wanted = wanted

    def allowed(self, drafts: Sequence[int]) -> Mask | None:
        so_far: list[int] = list(self.committed)
        for draft in drafts:
            mask = self._mask(so_far)
            if mask is None or not mask[draft]:
                return None
            so_far.append(draft)
        return self._mask(so_far)

    def commit(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            mask = self._mask(self.committed)
            if mask is None or not mask[token]:
                raise InternalError(f"{token} is not allowed behind {self.committed}")
            self.committed.append(token)

    def _mask(self, so_far: list[int]) -> Mask | None:
        if END in so_far:
            return None
        mask = np.zeros(VOCAB, dtype=np.bool_)
        if len(so_far) == self._length:
            mask[END] = True
            return mask
        mask[list(self._wanted)] = True
        parity = len(so_far) % 2
        mask[[token for token in range(VOCAB) if token % 2 != parity]] = False
        return mask


def constrained(model: Model, length: int = 11, **options: Any) -> tuple[int, ...]:
    grammar = Alternating(length)
    made = model.generate(PROMPT, constraint=grammar, max_tokens=20, seed=7, **options)
    assert list(made.token_ids) == grammar.committed
    return made.token_ids


@pytest.mark.parametrize("family", ["qwen3_5", "mimo", "deepseek_v3", "llama"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_answer_obeys_and_is_that_of_plain_decoding(
    models: Callable[[FamilyName], Model], family: FamilyName, temperature: float
) -> None:
    model = models(family)
    plain = constrained(model, temperature=temperature, depth=0)
    assert [token % 2 for token in plain[:-1]] == [0, 1] * 5 + [0]
    assert len(plain) == 12
    assert plain[-1] == END
    for depth in (1, 3, 8) if model.has_head else ():
        assert constrained(model, temperature=temperature, depth=depth) == plain


def test_drafts_behind_the_end_of_the_grammar_are_not_made(
    models: Callable[[FamilyName], Model],
) -> None:
    model = models("mimo")
    for length in range(1, 9):
        made = constrained(model, length, temperature=0.0, depth=8)
        assert len(made) == length + 1


def test_a_head_that_wants_what_is_not_allowed_changes_nothing(
    models: Callable[[FamilyName], Model],
) -> None:
    model = models("mimo")
    plain = constrained(model, temperature=0.0, depth=0)
    text = [*PROMPT, *plain]
    wrong = with_script(model, text, wrong=range(len(PROMPT), len(text), 2))
    assert constrained(wrong, temperature=0.0, depth=3) == plain


def test_answers_that_end_for_want_of_room_are_a_beginning(
    models: Callable[[FamilyName], Model],
) -> None:
    model = models("mimo")
    grammar = Alternating(30)
    made = model.generate(PROMPT, constraint=grammar, max_tokens=9, temperature=0.0, depth=4)
    assert made.finish_reason == "length"
    assert [token % 2 for token in made.token_ids] == [0, 1] * 4 + [0]


@pytest.mark.parametrize("law", ["rejection", "block"])
def test_other_laws_follow_the_masked_law(models: Callable[[FamilyName], Model], law: str) -> None:
    """The second token, which is a draft kept or replaced, over many seeds."""
    model = models("mimo")
    first, choices = 4, [3, 5, 7, 9]
    seen: Counter[int] = Counter()
    for seed in range(300):
        made = model.generate(
            PROMPT,
            constraint=Alternating(3, (first, *choices)),
            max_tokens=2,
            temperature=SHARP,
            seed=seed,
            depth=2,
            acceptance=law,
        )
        assert made.token_ids[0] == first
        seen[made.token_ids[1]] += 1
    expected = masked_law(model, [*PROMPT, first], choices)
    counts = [seen[token] for token in choices]
    assert chisquare(counts, expected * sum(counts)).pvalue > 1e-3
    # Negative control: so many answers tell this law from one with two chances exchanged.
    order = np.argsort(expected)
    swapped = expected.copy()
    swapped[order[[0, -1]]] = expected[order[[-1, 0]]]
    assert chisquare(counts, swapped * sum(counts)).pvalue < 1e-6


def masked_law(
    model: Model, context: list[int], choices: list[int]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Softmax over `choices` alone of the logits behind `context`."""
    hidden = model.trunk.forward(mx.array([context]), model.trunk.make_caches())
    row = np.array(model.trunk.logits(hidden.after_norm)[0, -1].astype(mx.float32))
    weights = np.exp((row[choices].astype(np.float64) - row[choices].max()) / SHARP)
    return np.asarray(weights / weights.sum())
