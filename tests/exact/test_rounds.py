"""Greedy rounds emit what plain decoding emits, however wrong the drafts are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.exact.scripted_heads import PROMPT, with_script
from tests.support.ties import explain
from tests.support.tiny_families import FAMILY_NAMES, FamilyName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtplx.runtime.model import Model

LENGTH = 200
TIE = 1e-4
GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_end_tokens": True}
WRONG: dict[str, Callable[[int], bool]] = {
    "never": lambda _: False,
    "at 3, 4 and 9": lambda i: i % 11 in (3, 4, 9),
    "every other": lambda i: i % 2 == 0,
    "always": lambda _: True,
}
# Depths and length of the text for each pattern.
RUNS = {
    "never": ((1, 8), 100),
    "at 3, 4 and 9": ((1, 2, 3), LENGTH),
    "every other": ((3,), 60),
    "always": ((2,), 40),
}


def assert_same(model: Model, expected: Sequence[int], found: Sequence[int]) -> None:
    """Equal, or parted where two tokens were equally good up to rounding."""
    gap = explain(model, PROMPT, expected, found, **GREEDY, depth=0)
    assert gap is None or gap < TIE, f"{found} instead of {expected}: gap {gap}"


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("wrong", WRONG)
def test_drafts_right_and_wrong_give_the_text_of_plain_decoding(
    models: Callable[[FamilyName], Model], family: FamilyName, wrong: str
) -> None:
    depths, length = RUNS[wrong]
    model = models(family)
    plain = model.generate(PROMPT, **GREEDY, depth=0, max_tokens=length)
    text = [*PROMPT, *plain.token_ids]
    positions = {len(PROMPT) + i for i in range(length) if WRONG[wrong](i)}
    scripted = with_script(model, text, positions)
    for depth in depths:
        found = scripted.generate(PROMPT, **GREEDY, depth=depth, max_tokens=length)
        assert_same(model, plain.token_ids, found.token_ids)
        assert len(found.token_ids) == length
        acceptance = found.stats.acceptance_by_depth[0]
        if wrong == "never":
            assert acceptance == 1.0
            assert found.stats.rounds <= -(-length // (depth + 1))
        if wrong == "always":
            assert acceptance == 0.0


@pytest.mark.parametrize("family", [f for f in FAMILY_NAMES if f != "llama"])
@pytest.mark.parametrize("depth", [4, 6, "auto"])
def test_the_models_own_head_gives_the_text_of_plain_decoding(
    models: Callable[[FamilyName], Model], family: FamilyName, depth: Any
) -> None:
    model = models(family)
    plain = model.generate(PROMPT, **GREEDY, depth=0, max_tokens=40)
    found = model.generate(PROMPT, **GREEDY, depth=depth, max_tokens=40)
    assert_same(model, plain.token_ids, found.token_ids)


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("chunk", [1, 3])
def test_the_prefill_chunk_changes_nothing(
    models: Callable[[FamilyName], Model], family: FamilyName, chunk: int
) -> None:
    model = models(family)
    depth = 2 if model.has_head else 0
    whole = model.generate(PROMPT, **GREEDY, depth=depth, max_tokens=20)
    found = model.generate(PROMPT, **GREEDY, depth=depth, max_tokens=20, prefill_chunk=chunk)
    assert_same(model, whole.token_ids, found.token_ids)
    assert found.stats.accepted_by_depth == whole.stats.accepted_by_depth


@pytest.mark.parametrize("family", ["mimo", "qwen3_5"])
@pytest.mark.parametrize("temperature", [0, 0.0, 1e-9])
@pytest.mark.parametrize("acceptance", ["coupled", "rejection", "block"])
def test_greedy_is_decided_by_the_temperature_alone(
    models: Callable[[FamilyName], Model],
    family: FamilyName,
    temperature: float,
    acceptance: str,
) -> None:
    model = models(family)
    options = {"ignore_end_tokens": True, "max_tokens": 30, "temperature": temperature}
    plain = model.generate(PROMPT, **options, depth=0)
    for seed in (1, 2):
        found = model.generate(PROMPT, **options, depth=3, acceptance=acceptance, seed=seed)
        assert_same(model, plain.token_ids, found.token_ids)


@pytest.mark.parametrize("family", [f for f in FAMILY_NAMES if f != "llama"])
def test_coupled_sampling_depends_on_the_seed_and_not_on_the_depth(
    models: Callable[[FamilyName], Model], family: FamilyName
) -> None:
    model = models(family)
    options = {"ignore_end_tokens": True, "max_tokens": 24, "temperature": 0.8, "top_p": 0.95}
    texts = set()
    for seed in (1, 2):
        sampled = {**options, "top_k": 40, "seed": seed}
        plain = model.generate(PROMPT, **sampled, depth=0)
        texts.add(plain.token_ids)
        for depth in (1, 4):
            found = model.generate(PROMPT, **sampled, depth=depth)
            gap = explain(model, PROMPT, plain.token_ids, found.token_ids, **sampled, depth=0)
            assert gap is None or gap < 1e-3
    assert len(texts) == 2


PENALTIES: list[dict[str, Any]] = [
    {"frequency_penalty": -2.0},
    {"frequency_penalty": 0.0},
    {"frequency_penalty": 2.0},
    {"presence_penalty": 1.5},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"repetition_penalty": 1.2, "frequency_penalty": 0.5, "presence_penalty": -0.5},
]


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
@pytest.mark.parametrize("wrong", ["never", "at 3, 4 and 9"])
def test_penalties_act_inside_a_block_as_in_plain_decoding(
    models: Callable[[FamilyName], Model], penalties: dict[str, Any], wrong: str
) -> None:
    model, prompt = models("mimo"), [7] * 6
    options = {**GREEDY, **penalties, "max_tokens": 36}
    plain = model.generate(prompt, **options, depth=0)
    text = [*prompt, *plain.token_ids]
    positions = {len(prompt) + i for i in range(36) if WRONG[wrong](i)}
    found = with_script(model, text, positions).generate(prompt, **options, depth=3)
    gap = explain(model, prompt, plain.token_ids, found.token_ids, **options, depth=0)
    assert gap is None or gap < TIE
    if wrong == "never":
        assert found.stats.acceptance_by_depth == [1.0, 1.0, 1.0]


def test_penalties_change_the_text(models: Callable[[FamilyName], Model]) -> None:
    model = models("mimo")
    texts = [
        model.generate([7] * 6, **GREEDY, **penalties, max_tokens=50, depth=3).token_ids
        for penalties in PENALTIES
    ]
    rewarded, plain, punished = texts[:3]
    assert all(ids != plain for ids in (rewarded, *texts[2:]))
    assert len(set(rewarded)) < len(set(plain)) < len(set(punished))
