"""The acceptance laws on exact fractions: every draft, every outcome, every next token."""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from mtplx.runtime.sampling.laws import Outcome, block_outcome, rejection_outcome

Law = list[Fraction]
Model = Callable[[tuple[int, ...]], Law]
"""The law of the next token after a context."""

OutcomeOf = Callable[[Sequence[Law], Sequence[Law], Sequence[int]], Outcome[Fraction]]

ZERO, ONE = Fraction(0), Fraction(1)

LAWS = [pytest.param(rejection_outcome, id="rejection"), pytest.param(block_outcome, id="block")]
SIZES = [(3, 2), (3, 3), (4, 2), (4, 3), (5, 2)]


def random_law(rng: random.Random, vocab_size: int, *, holes: bool) -> Law:
    """A law with small rational weights; with `holes`, some tokens are impossible."""
    low = 0 if holes else 1
    weights = [rng.randint(low, 9) for _ in range(vocab_size)]
    if not any(weights):
        weights[rng.randrange(vocab_size)] = 1
    return [Fraction(weight, sum(weights)) for weight in weights]


def random_model(seed: int, vocab_size: int, *, holes: bool = False) -> Model:
    """A model whose every context has a law of its own."""

    @cache
    def law(context: tuple[int, ...]) -> Law:
        return random_law(random.Random(f"{seed}:{context}"), vocab_size, holes=holes)

    return law


def chance_of(model: Model, tokens: tuple[int, ...]) -> Fraction:
    """The chance that `model` generates `tokens` from the empty context."""
    chance = ONE
    for i, token in enumerate(tokens):
        chance *= model(tokens[:i])[token]
    return chance


def emitted_law(
    outcome_of: OutcomeOf, target: Model, draft: Model, reported: Model, vocab_size: int, depth: int
) -> dict[tuple[int, ...], Fraction]:
    """The law of the first depth + 1 tokens: one round, then plain sampling from the target.

    Drafts are drawn from `draft`; the law is told they came from `reported`.
    """
    emitted = dict.fromkeys(product(range(vocab_size), repeat=depth + 1), ZERO)
    for drafts in product(range(vocab_size), repeat=depth):
        drawn = chance_of(draft, drafts)
        if not drawn:
            continue
        outcome = outcome_of(
            [target(drafts[:i]) for i in range(depth + 1)],
            [reported(drafts[:i]) for i in range(depth)],
            drafts,
        )
        for kept, chance in enumerate(outcome.accepted):
            for token, weight in enumerate(outcome.next_laws[kept]):
                prefix = (*drafts[:kept], token)
                for rest in product(range(vocab_size), repeat=depth - kept):
                    whole = prefix + rest
                    tail = ONE
                    for i in range(len(prefix), len(whole)):
                        tail *= target(whole[:i])[whole[i]]
                    emitted[whole] += drawn * chance * weight * tail
    return emitted


def mean_accepted(
    outcome_of: OutcomeOf, target: Model, draft: Model, vocab_size: int, depth: int
) -> Fraction:
    """The mean number of drafts that stay."""
    mean = ZERO
    for drafts in product(range(vocab_size), repeat=depth):
        drawn = chance_of(draft, drafts)
        if drawn:
            rows = [target(drafts[:i]) for i in range(depth + 1)]
            outcome = outcome_of(rows, [draft(drafts[:i]) for i in range(depth)], drafts)
            mean += drawn * sum(kept * chance for kept, chance in enumerate(outcome.accepted))
    return mean


@pytest.mark.parametrize("outcome_of", LAWS)
@pytest.mark.parametrize(("vocab_size", "depth"), SIZES)
@pytest.mark.parametrize("holes", [False, True], ids=["full support", "impossible tokens"])
def test_emitted_law_is_the_target_law(
    outcome_of: OutcomeOf, vocab_size: int, depth: int, holes: bool
) -> None:
    for seed in range(3):
        target = random_model(seed, vocab_size, holes=holes)
        draft = random_model(seed + 100, vocab_size, holes=holes)
        emitted = emitted_law(outcome_of, target, draft, draft, vocab_size, depth)
        assert emitted == {tokens: chance_of(target, tokens) for tokens in emitted}


@pytest.mark.parametrize("outcome_of", LAWS)
def test_emitted_law_is_the_target_law_for_a_greedy_drafter(outcome_of: OutcomeOf) -> None:
    target = random_model(1, 4)

    def draft(context: tuple[int, ...]) -> Law:
        best = random_law(random.Random(f"9:{context}"), 4, holes=False)
        return [ONE if x == best.index(max(best)) else ZERO for x in range(4)]

    emitted = emitted_law(outcome_of, target, draft, draft, 4, 3)
    assert emitted == {tokens: chance_of(target, tokens) for tokens in emitted}


@pytest.mark.parametrize("outcome_of", LAWS)
def test_every_draft_stays_when_the_drafter_is_the_target(outcome_of: OutcomeOf) -> None:
    model = random_model(3, 3, holes=True)
    assert mean_accepted(outcome_of, model, model, 3, 3) == 3
    emitted = emitted_law(outcome_of, model, model, model, 3, 3)
    assert emitted == {tokens: chance_of(model, tokens) for tokens in emitted}


@pytest.mark.parametrize("outcome_of", LAWS)
def test_a_misreported_draft_law_breaks_the_emitted_law(outcome_of: OutcomeOf) -> None:
    target, draft, reported = (random_model(seed, 3) for seed in (0, 1, 2))
    emitted = emitted_law(outcome_of, target, draft, reported, 3, 2)
    assert sum(emitted.values()) == 1
    assert emitted != {tokens: chance_of(target, tokens) for tokens in emitted}


@pytest.mark.parametrize(("vocab_size", "depth"), SIZES)
def test_block_accepts_at_least_as_many_drafts_as_rejection(vocab_size: int, depth: int) -> None:
    gains = []
    for seed in range(6):
        target = random_model(seed, vocab_size, holes=seed % 2 == 1)
        draft = random_model(seed + 50, vocab_size, holes=seed % 2 == 1)
        block = mean_accepted(block_outcome, target, draft, vocab_size, depth)
        gains.append(block - mean_accepted(rejection_outcome, target, draft, vocab_size, depth))
    assert min(gains) >= 0
    assert max(gains) > 0


def test_block_at_depth_one_is_rejection() -> None:
    target, draft = random_model(5, 5), random_model(6, 5)
    for token in range(5):
        rows = [target(()), target((token,))]
        assert block_outcome(rows, [draft(())], [token]) == rejection_outcome(
            rows, [draft(())], [token]
        )


def test_first_draft_stays_with_chance_one_minus_total_variation() -> None:
    target, draft = random_model(7, 5), random_model(8, 5)
    overlap = sum(min(p, q) for p, q in zip(target(()), draft(()), strict=True))
    assert mean_accepted(rejection_outcome, target, draft, 5, 1) == overlap


def test_means_of_the_two_token_example_of_the_block_verification_paper() -> None:
    # Sun et al. 2403.10444, section 2: M_b = (1/3, 2/3), M_s = (2/3, 1/3), two drafts.
    def target(_: tuple[int, ...]) -> Law:
        return [Fraction(1, 3), Fraction(2, 3)]

    def draft(_: tuple[int, ...]) -> Law:
        return [Fraction(2, 3), Fraction(1, 3)]

    assert mean_accepted(rejection_outcome, target, draft, 2, 2) == Fraction(10, 9)
    assert mean_accepted(block_outcome, target, draft, 2, 2) == Fraction(11, 9)
