"""20,000 runs of the array laws over eight tokens, against an independent float64 reference.

Each run emits two tokens, from one round of two drafts or from two rounds, with penalties, bias,
top-k and top-p active, so that every row has its own history. Seeds are fixed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from mtplx.runtime.sampling import (
    Noise,
    SamplingParams,
    SamplingPipeline,
    Stream,
    TokenHistory,
    make_acceptance,
)
from mtplx.runtime.sampling.laws import Outcome, block_outcome, rejection_outcome
from tests.exact.synthetic import Logits, blurred, markov_logits
from tests.unit.sampling.reference import Row, process

VOCAB, RUNS, FALSE_FAIL = 8, 20_000, 1e-9

PROMPT, COMMITTED = (3, 5, 5), (1, 5)
FIRST = len(PROMPT) + len(COMMITTED)

PARAMS = SamplingParams(
    temperature=0.8,
    top_p=0.9,
    top_k=5,
    repetition_penalty=1.15,
    presence_penalty=0.2,
    frequency_penalty=0.3,
    logit_bias=((2, 0.5), (6, -0.4)),
)

TARGET = markov_logits(11, VOCAB, order=1, spread=0.8)
DRAFTER = blurred(TARGET, 12, VOCAB, 2.0)
OTHER_DRAFTER = blurred(TARGET, 13, VOCAB, 2.0)


def law_of(model: Logits, completion: Sequence[int]) -> Row:
    """The reference law of the next token."""
    scores = model([*PROMPT, *completion]).astype(np.float64)
    return process(scores, PARAMS, PROMPT, completion)


def point_mass(scores: mx.array) -> mx.array:
    """A drafter that always proposes its favourite: all mass on one token  # [R, V]."""
    best = mx.argmax(scores, axis=-1, keepdims=True)
    return mx.where(mx.arange(VOCAB) == best, 0.0, -mx.inf)


class TabledNoise(Noise):
    """Noise read from tables, so that `mx.vmap` can run many runs at once.

    `gumbels`  # [forks + 1, positions, streams, V]; `uniforms`  # the same without V.
    """

    SHAPE = (4, 4, 2)

    def __init__(self, gumbels: mx.array, uniforms: mx.array, fork: int = 0) -> None:
        super().__init__(0, VOCAB)
        self._gumbels, self._uniforms, self._fork = gumbels, uniforms, fork

    def gumbel(self, first: int, rows: int, stream: Stream = Stream.TOKEN) -> mx.array:
        return self._gumbels[self._fork, first - FIRST : first - FIRST + rows, int(stream)]

    def uniform(self, first: int, rows: int, stream: Stream = Stream.ACCEPT) -> mx.array:
        return self._uniforms[self._fork, first - FIRST : first - FIRST + rows, int(stream)]

    def fork(self, index: int) -> Noise:
        return TabledNoise(self._gumbels, self._uniforms, index + 1)


class Rows(NamedTuple):
    """Processed rows of one round, for every choice of its two drafts."""

    target: mx.array  # [V, V, 3, V]
    draft: mx.array  # [V, 2, V]


def rows_after(committed: tuple[int, ...], drafter: Logits) -> Rows:
    """Run the pipeline once for each context that a round after `committed` can meet."""
    pipeline, history = SamplingPipeline(PARAMS, VOCAB), TokenHistory(VOCAB, PROMPT)
    history.append(committed)

    def rows(model: Logits, drafts: tuple[int, ...], count: int) -> mx.array:
        contexts = [(*PROMPT, *committed, *drafts[:r]) for r in range(count)]
        block = mx.array(np.stack([model(context) for context in contexts]))
        return pipeline.scores(block, history, mx.array(drafts, dtype=mx.int32), 0)

    pairs = product(range(VOCAB), repeat=2)
    target = mx.stack([rows(TARGET, pair, 3) for pair in pairs])
    draft = mx.stack([rows(drafter, (token,), 2) for token in range(VOCAB)])
    return Rows(target.reshape(VOCAB, VOCAB, 3, VOCAB), draft)


@cache
def all_rows(drafter: Logits) -> tuple[Rows, Rows]:
    """Rows of a first round, and of a second one after each possible token  # [V, ...]."""
    later = [rows_after((*COMMITTED, token), drafter) for token in range(VOCAB)]
    second = Rows(*(mx.stack(list(column)) for column in zip(*later, strict=True)))
    mx.eval(first := rows_after(COMMITTED, drafter), second)
    return first, second


@dataclass(frozen=True, slots=True)
class Drafting:
    """How drafts are drawn and where they claim to come from."""

    drawn: Logits = DRAFTER
    reported: Logits = DRAFTER
    greedy: bool = False

    def rows(self, model: Logits) -> tuple[Rows, Rows]:
        """`all_rows` of one drafter, as point masses when drafts are greedy."""
        rows = all_rows(model)
        if self.greedy:
            return rows[0]._replace(draft=point_mass(rows[0].draft)), rows[1]._replace(
                draft=point_mass(rows[1].draft)
            )
        return rows


def two_tokens(noise: Noise, acceptance: str, drafting: Drafting) -> mx.array:
    """First and second emitted token, and drafts kept by the first round  # [3]."""
    law = make_acceptance(acceptance, PARAMS, noise)
    drawn, reported = drafting.rows(drafting.drawn), drafting.rows(drafting.reported)

    def one_round(drawn: Rows, reported: Rows, first: int) -> tuple[mx.array, mx.array, mx.array]:
        d1 = law.propose(drawn.draft[0, :1], first)
        d2 = law.propose(mx.take(drawn.draft, d1, axis=0)[1:], first + 1)
        target = mx.take(mx.take(drawn.target, d1, axis=0), d2, axis=0)
        draft, drafts = mx.take(reported.draft, d1, axis=0), mx.stack([d1, d2])
        verdict = law.accept(target, draft, drafts, first)
        after = mx.where(verdict.accepted == 1, verdict.next_token, d2)
        return verdict.accepted, mx.where(verdict.accepted > 0, d1, verdict.next_token), after

    accepted, token, after = one_round(drawn[0], reported[0], FIRST)
    later = [Rows(*(mx.take(x, token, axis=0) for x in rows[1])) for rows in (drawn, reported)]
    # A run whose first round kept no draft takes its second token from the second round.
    _, token_of_second_round, _ = one_round(later[0], later[1], FIRST + 1)
    return mx.stack([token, mx.where(accepted > 0, after, token_of_second_round), accepted])


class Sample(NamedTuple):
    """What the runs emitted, and how many drafts their first rounds kept."""

    pairs: NDArray[np.int64]  # [N, 2]
    accepted: NDArray[np.int64]  # [N]


@cache
def sample(acceptance: str, drafting: Drafting = Drafting()) -> Sample:
    """RUNS runs at once, each with noise of its own."""
    shape, keys = (RUNS, *TabledNoise.SHAPE), mx.random.split(mx.random.key(2024))
    gumbels = mx.random.gumbel((*shape, VOCAB), key=keys[0])
    uniforms = mx.random.uniform(shape=shape, key=keys[1])
    run = mx.vmap(lambda g, u: two_tokens(TabledNoise(g, u), acceptance, drafting))
    columns = np.array(run(gumbels, uniforms), dtype=np.int64)
    return Sample(columns[:, :2], columns[:, 2])


def sample_seeds(acceptance: str, runs: int) -> Sample:
    """Runs one by one, each with the noise of its own seed."""
    rows = [two_tokens(Noise(seed, VOCAB), acceptance, Drafting()) for seed in range(runs)]
    columns = np.array(mx.stack(rows), dtype=np.int64)
    return Sample(columns[:, :2], columns[:, 2])


def p_value(pairs: NDArray[np.int64]) -> float:
    """Chi-square of the emitted pairs against the target law; 0 for an impossible pair."""
    first = law_of(TARGET, COMMITTED)
    law = np.stack([first[x] * law_of(TARGET, (*COMMITTED, x)) for x in range(VOCAB)]).ravel()
    counts = np.bincount(pairs[:, 0] * VOCAB + pairs[:, 1], minlength=VOCAB**2)
    if counts[law == 0].any():
        return 0.0
    expected = law * len(pairs)
    rare = expected < 5
    pool = [counts[rare].sum(), expected[rare].sum()]
    seen, wanted = np.append(counts[~rare], pool[0]), np.append(expected[~rare], pool[1])
    return float(stats.chisquare(seen[wanted > 0], wanted[wanted > 0]).pvalue)


def overlap() -> float:
    """sum min(p, q) for the first token: 1 - TV."""
    return float(np.minimum(law_of(TARGET, COMMITTED), law_of(DRAFTER, COMMITTED)).sum())


def mean_accepted(acceptance: str) -> float:
    """The mean number of drafts kept, from the laws on plain numbers and the reference rows."""
    law = {"rejection": rejection_outcome, "block": block_outcome}[acceptance]
    q = law_of(DRAFTER, COMMITTED)
    mean = 0.0
    for d1, d2 in product(range(VOCAB), repeat=2):
        q2 = law_of(DRAFTER, (*COMMITTED, d1))
        if q[d1] * q2[d2] > 0:
            targets = [law_of(TARGET, (*COMMITTED, *(d1, d2)[:i])).tolist() for i in range(3)]
            outcome: Outcome[float] = law(targets, [q.tolist(), q2.tolist()], [d1, d2])
            mean += q[d1] * q2[d2] * (outcome.accepted[1] + 2 * outcome.accepted[2])
    return mean


def is_within(values: NDArray[np.int64] | NDArray[np.bool_], expected: float) -> bool:
    """Whether the mean of `values` is within three standard errors of `expected`."""
    return bool(abs(values.mean() - expected) <= 3 * values.std() / len(values) ** 0.5)


def test_the_filters_are_active_and_the_drafter_is_imperfect() -> None:
    assert 2 <= (law_of(TARGET, COMMITTED) > 0).sum() <= 5
    assert 0.5 < overlap() < 0.95


@pytest.mark.parametrize("acceptance", ["coupled", "rejection", "block"])
def test_emitted_tokens_follow_the_target_law(acceptance: str) -> None:
    assert p_value(sample(acceptance).pairs) > FALSE_FAIL


@pytest.mark.parametrize("acceptance", ["coupled", "rejection", "block"])
def test_emitted_tokens_follow_the_target_law_over_seeds(acceptance: str) -> None:
    assert p_value(sample_seeds(acceptance, 2000).pairs) > FALSE_FAIL


@pytest.mark.parametrize("acceptance", ["rejection", "block"])
def test_a_greedy_draft_reported_as_a_point_mass_keeps_the_target_law(acceptance: str) -> None:
    runs = sample(acceptance, Drafting(greedy=True))
    assert p_value(runs.pairs) > FALSE_FAIL
    if acceptance == "rejection":
        best = law_of(DRAFTER, COMMITTED).argmax()
        assert is_within(runs.accepted >= 1, law_of(TARGET, COMMITTED)[best])


@pytest.mark.parametrize("acceptance", ["rejection", "block"])
def test_a_misreported_draft_law_is_caught(acceptance: str) -> None:
    runs = sample(acceptance, Drafting(drawn=OTHER_DRAFTER))
    assert p_value(runs.pairs) < FALSE_FAIL


def test_coupled_does_not_depend_on_the_drafter() -> None:
    other = sample("coupled", Drafting(drawn=OTHER_DRAFTER))
    np.testing.assert_array_equal(other.pairs, sample("coupled").pairs)


def test_rejection_keeps_the_first_draft_with_chance_sum_min_p_q() -> None:
    assert is_within(sample("rejection").accepted >= 1, overlap())


@pytest.mark.parametrize("acceptance", ["rejection", "block"])
def test_mean_accepted_is_that_of_the_law_on_plain_numbers(acceptance: str) -> None:
    assert is_within(sample(acceptance).accepted, mean_accepted(acceptance))


def test_block_keeps_more_drafts_than_rejection() -> None:
    assert mean_accepted("block") > mean_accepted("rejection")
    assert sample("block").accepted.mean() > sample("rejection").accepted.mean()


def test_coupled_keeps_the_first_draft_within_its_bounds() -> None:
    kept = sample("coupled").accepted >= 1
    distance, margin = 1 - overlap(), 3 * kept.std() / RUNS**0.5
    low, high = (1 - distance) / (1 + distance), 1 - distance
    assert low - margin <= kept.mean() <= high + margin
