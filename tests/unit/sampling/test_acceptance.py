"""The acceptance laws on arrays against the laws on plain numbers."""

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import InternalError, InvalidRequestError
from mtplx.runtime.sampling import (
    ACCEPTANCE_NAMES,
    Noise,
    SamplingParams,
    make_acceptance,
)
from mtplx.runtime.sampling.block import block_chances
from mtplx.runtime.sampling.laws import (
    block_acceptance,
    block_joint,
    block_outcome,
    rejection_acceptance,
    rejection_outcome,
)
from mtplx.runtime.sampling.rejection import stay_chances
from mtplx.runtime.sampling.residual import next_weights
from tests.unit.sampling.reference import Row, softmax

SAMPLED = SamplingParams(temperature=1.0)
GREEDY = SamplingParams()
NO_DRAFTS = mx.zeros((0,), dtype=mx.int32)
VOCAB = 6


def random_block(seed: int, depth: int, *, holes: bool) -> tuple[Row, Row, list[int]]:
    """Target rows, draft rows and drafts that the drafter can have drawn."""
    rng = np.random.default_rng(seed)
    target = np.stack([softmax(row) for row in rng.normal(size=(depth + 1, VOCAB)) * 1.5])
    draft = np.stack([softmax(row) for row in rng.normal(size=(depth, VOCAB)) * 1.5])
    if holes:
        for row in (*target, *draft):
            row[rng.permutation(VOCAB)[:2]] = 0
            row /= row.sum()
    drafts = [int(rng.choice(VOCAB, p=row)) for row in draft]
    return target, draft, drafts


def logs(rows: Row) -> mx.array:
    with np.errstate(divide="ignore"):
        return mx.array(np.log(rows).astype(np.float32))


def ids(tokens: list[int]) -> mx.array:
    return mx.array(tokens, dtype=mx.int32)


@pytest.mark.parametrize("holes", [False, True], ids=["full support", "impossible tokens"])
@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_chances_equal_those_on_plain_numbers(seed: int, depth: int, holes: bool) -> None:
    target, draft, drafts = random_block(seed, depth, holes=holes)
    plain = (target.tolist(), draft.tolist(), drafts)
    arrays = (logs(target), logs(draft), ids(drafts))
    np.testing.assert_allclose(stay_chances(*arrays), rejection_acceptance(*plain), atol=2e-6)
    np.testing.assert_allclose(block_chances(*arrays).joint, block_joint(*plain), atol=2e-6)
    np.testing.assert_allclose(block_chances(*arrays).stay, block_acceptance(*plain), atol=5e-6)


@pytest.mark.parametrize("holes", [False, True], ids=["full support", "impossible tokens"])
@pytest.mark.parametrize("depth", [1, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_next_token_has_the_law_on_plain_numbers(seed: int, depth: int, holes: bool) -> None:
    target, draft, drafts = random_block(seed, depth, holes=holes)
    arrays = (logs(target), logs(draft))
    joint = block_chances(*arrays, ids(drafts)).joint[:-1]
    plain = (target.tolist(), draft.tolist(), drafts)
    for scales, outcome in [
        (mx.ones((depth,)), rejection_outcome(*plain)),
        (joint, block_outcome(*plain)),
    ]:
        for kept, chance in enumerate(outcome.accepted):
            if chance > 1e-6:
                weights = np.array(next_weights(*arrays, mx.array(kept), scales))
                law = weights / weights.sum()
                np.testing.assert_allclose(law, outcome.next_laws[kept], atol=1e-4)


def test_a_block_of_equal_laws_is_accepted_whole() -> None:
    target, _, _ = random_block(3, 4, holes=True)
    drafts = [int(row.argmax()) for row in target[:4]]
    for name in ACCEPTANCE_NAMES[1:]:
        for seed in range(50):
            law = make_acceptance(name, SAMPLED, Noise(seed, VOCAB))
            verdict = law.accept(logs(target), logs(target[:4]), ids(drafts), 9)
            assert verdict.accepted.item() == 4


def test_laws_that_differ_by_rounding_never_emit_an_impossible_token() -> None:
    target = mx.array([[-mx.inf, -0.7, -0.7, -mx.inf], [-mx.inf, -mx.inf, 0.0, -mx.inf]])
    draft = mx.array([[-mx.inf, -0.69999, -0.69999, -mx.inf]])
    nothing_left = next_weights(target, draft, mx.array(0), mx.ones((1,)))
    assert (nothing_left > 0).tolist() == [False, True, True, False]


@pytest.mark.parametrize("name", ACCEPTANCE_NAMES)
def test_a_draft_the_target_forbids_is_never_kept(name: str) -> None:
    target = logs(np.array([[0.5, 0.5, 0.0], [0.2, 0.4, 0.4], [0.1, 0.1, 0.8]]))
    draft = logs(np.array([[0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]))
    for seed in range(100):
        law = make_acceptance(name, SAMPLED, Noise(seed, 3))
        verdict = law.accept(target, draft, ids([2, 1]), 0)
        assert verdict.accepted.item() == 0
        assert verdict.next_token.item() in (0, 1)


@pytest.mark.parametrize("name", ACCEPTANCE_NAMES)
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_at_temperature_zero_every_law_is_the_argmax_match(name: str, depth: int) -> None:
    target, draft, _ = (
        random_block(1, depth, holes=False) if depth else random_block(1, 1, holes=False)
    )
    target, draft = target[: depth + 1], draft[:depth]
    best = [int(row.argmax()) for row in target]
    law = make_acceptance(name, SamplingParams(temperature=1e-9), Noise(0, VOCAB))
    assert law.name == name
    for kept in range(depth + 1):
        drafts = [x if i != kept else (x + 1) % VOCAB for i, x in enumerate(best[:depth])]
        verdict = law.accept(logs(target), [logs(row[None]) for row in draft], ids(drafts), 5)
        assert (verdict.accepted.item(), verdict.next_token.item()) == (kept, best[kept])
    assert law.propose(logs(target[:1]), 5).item() == best[0]


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_without_drafts_every_law_emits_the_same_token(params: SamplingParams) -> None:
    target, _, _ = random_block(2, 1, holes=True)
    tokens = set()
    for name in ACCEPTANCE_NAMES:
        law = make_acceptance(name, params, Noise(77, VOCAB))
        tokens.add(
            tuple(
                law.accept(logs(target[:1]), [], NO_DRAFTS, first).next_token.item()
                for first in range(20)
            )
        )
    assert len(tokens) == 1


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", ACCEPTANCE_NAMES)
def test_nothing_is_evaluated_on_the_way(name: str, params: SamplingParams) -> None:
    target, draft, drafts = random_block(4, 3, holes=False)
    law = make_acceptance(name, params, Noise(1, VOCAB))

    def one_round(target: mx.array, draft: mx.array, drafts: mx.array) -> list[mx.array]:
        return [law.propose(draft[:1], 3), *law.accept(target, draft, drafts, 3)]

    # Reading a value inside a transformation raises, so this also shows there is no sync.
    outputs = mx.vmap(one_round)(logs(target)[None], logs(draft)[None], ids(drafts)[None])
    assert [(x.shape, x.dtype) for x in outputs] == [((1,), mx.int32)] * 3


@pytest.mark.parametrize("name", ACCEPTANCE_NAMES)
def test_rows_that_do_not_fit_the_drafts_are_a_bug(name: str) -> None:
    target, draft, drafts = random_block(5, 3, holes=False)
    for params in (GREEDY, SAMPLED):
        law = make_acceptance(name, params, Noise(1, VOCAB))
        with pytest.raises(InternalError, match="target rows"):
            law.accept(logs(target[:2]), logs(draft), ids(drafts), 0)


@pytest.mark.parametrize("name", ACCEPTANCE_NAMES[1:])
def test_draft_rows_are_needed_for_every_draft(name: str) -> None:
    target, draft, drafts = random_block(5, 3, holes=False)
    with pytest.raises(InternalError, match="rows of their law"):
        make_acceptance(name, SAMPLED, Noise(1, VOCAB)).accept(
            logs(target), logs(draft[:2]), ids(drafts), 0
        )


def test_an_unknown_law_is_refused_by_its_key() -> None:
    with pytest.raises(InvalidRequestError, match="coupled, rejection, block") as caught:
        make_acceptance("typical", SAMPLED, Noise(0, VOCAB))
    assert caught.value.key == "acceptance"
