"""A statistical test of the acceptance laws that draw their own drafts, on rows of the real model.

Each run emits two tokens: from one round of two drafts, or from that and a plain step. What is emitted must follow
the target's law exactly, and drafts must stay as often as the law says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mtplx.forge.verify.goodness import goodness_of_fit
from mtplx.forge.verify.law_rows import LAW_PARAMS, LawRows, informative_context, law_rows
from mtplx.forge.verify.prompts import EncodedPrompt, one_of_each_domain
from mtplx.forge.verify.settings import VerifySettings
from mtplx.runtime.decode.draft import NO_DRAFTS
from mtplx.runtime.model import Model
from mtplx.runtime.sampling.acceptance import Acceptance, make_acceptance
from mtplx.runtime.sampling.laws import Outcome, block_outcome, rejection_outcome
from mtplx.runtime.sampling.noise import Noise, Stream
from mtplx.runtime.sampling.params import SamplingParams

ALPHA = 0.01
"""Chance that a sound law fails its first round of tests; what fails is tested again with fresh noise."""

STANDARD_ERRORS = 3.0
SEED = 2024

Make = Callable[[str, SamplingParams, Noise], Acceptance]
Progress = Callable[[str, float], None]

_OUTCOMES: Mapping[str, Callable[..., Outcome[float]]] = {
    "rejection": rejection_outcome,
    "block": block_outcome,
}
# Rejection and block draw from the request's noise, and from one fork for each round begun: two, and the one after.
_FORKS = 3
_POSITIONS = 2


class TabledNoise(Noise):
    """Noise read from tables, so that many runs are computed at once.

    `gumbels` [forks + 1, positions, V] and `uniforms` [forks + 1, positions]; entry 0 is the request's own noise.
    """

    def __init__(self, gumbels: mx.array, uniforms: mx.array, fork: int = 0) -> None:
        super().__init__(0, gumbels.shape[-1])
        self._gumbels, self._uniforms, self._fork = gumbels, uniforms, fork

    def gumbel(self, first: int, rows: int, stream: Stream = Stream.TOKEN) -> mx.array:  # noqa: ARG002
        """Rows of the table  # [rows, V]."""
        return self._gumbels[self._fork, first : first + rows]

    def uniform(self, first: int, rows: int, stream: Stream = Stream.ACCEPT) -> mx.array:  # noqa: ARG002
        """Numbers of the table  # [rows]."""
        return self._uniforms[self._fork, first : first + rows]

    def fork(self, index: int) -> Noise:
        """The table's entry for fork `index`."""
        return TabledNoise(self._gumbels, self._uniforms, index + 1)


class Sample(NamedTuple):
    """What the runs emitted, and how many drafts each kept."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    accepted: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LawCheck:
    """One law on one context.

    `p_first` and `p_both` are p-values of the first token and of both; `p_accepted` that of both among the runs that
    kept a draft (`rejection` alone promises a law there). `acceptance` is the share of runs that kept their first
    draft, and lies `standard_errors` away from `expected_acceptance`: for `rejection` that is sum min(p, q).
    """

    law: str
    context: str
    p_first: float
    p_both: float
    p_accepted: float | None
    acceptance: float
    expected_acceptance: float
    standard_errors: float

    def passes(self, threshold: float) -> bool:
        """Whether every p-value is above `threshold` and acceptance is as it should be."""
        p_values = [p for p in (self.p_first, self.p_both, self.p_accepted) if p is not None]
        return min(p_values) >= threshold and abs(self.standard_errors) <= STANDARD_ERRORS


@dataclass(frozen=True, slots=True)
class LawResult:
    """All checks; the first attempt of one that was repeated is in `repeated`."""

    checks: tuple[LawCheck, ...]
    repeated: tuple[LawCheck, ...]
    runs: int
    threshold: float

    @property
    def failed(self) -> tuple[LawCheck, ...]:
        """Checks that failed twice."""
        return tuple(check for check in self.checks if not check.passes(self.threshold))

    @property
    def passed(self) -> bool:
        """Whether all checks passed in the end."""
        return not self.failed

    def to_json(self) -> dict[str, Any]:
        """The verdict, how it was reached, and every figure."""
        return {
            "passed": self.passed,
            "runs": self.runs,
            "temperature": LAW_PARAMS.temperature,
            "top_k": LAW_PARAMS.top_k,
            "seed": SEED,
            "alpha": ALPHA,
            "p_threshold": self.threshold,
            "standard_errors_allowed": STANDARD_ERRORS,
            "checks": [asdict(check) for check in self.checks],
            "repeated": [asdict(check) for check in self.repeated],
        }


def check_laws(
    model: Model,
    prompts: Sequence[EncodedPrompt],
    settings: VerifySettings,
    on_progress: Progress,
    *,
    make: Make = make_acceptance,
) -> LawResult:
    """Test `rejection` and `block` after a context of one prompt of each domain.

    The threshold shares `ALPHA` out among all p-values (Bonferroni). A check that fails is repeated once with fresh
    noise and fails for good if it fails again, so that a sound artifact is hardly ever condemned.
    """
    contexts = one_of_each_domain(prompts)
    threshold = ALPHA / (len(contexts) * 5)  # three p-values for rejection, two for block
    checks: list[LawCheck] = []
    repeated: list[LawCheck] = []
    for done, prompt in enumerate(contexts):
        on_progress(f"acceptance laws on {prompt.name}", done / len(contexts))
        ids = informative_context(model, prompt.ids)
        rows, name = law_rows(model, ids), f"{prompt.name}, {len(ids)} tokens"
        for law in _OUTCOMES:
            attempts = (
                check_law(law, name, rows, settings.law_runs, SEED + attempt, make=make)
                for attempt in (0, 1)
            )
            check = next(attempts)
            if not check.passes(threshold):
                repeated.append(check)
                check = next(attempts)
            checks.append(check)
    return LawResult(tuple(checks), tuple(repeated), settings.law_runs, threshold)


def check_law(
    law: str, context: str, rows: LawRows, runs: int, seed: int, *, make: Make = make_acceptance
) -> LawCheck:
    """Sample one law `runs` times on `rows` and judge what it emits."""
    rng = np.random.default_rng(seed)
    found = _sample(law, rows, runs, seed, make)
    p1, p2, q1 = (_chances(scores) for scores in (rows.target1, rows.target2, rows.draft1))
    size = len(p1)
    pairs = found.first * size + found.second
    kept = found.accepted > 0
    overlap = np.minimum(p1, q1)
    p_accepted = None
    if law == "rejection":
        p_accepted = goodness_of_fit(
            np.bincount(pairs[kept], minlength=size**2), (overlap[:, None] * p2).ravel(), rng
        )
    expected = _expected_acceptance(law, rows)
    error = max((expected * (1.0 - expected) / runs) ** 0.5, 1e-6)
    return LawCheck(
        law=law,
        context=context,
        p_first=goodness_of_fit(np.bincount(found.first, minlength=size), p1, rng),
        p_both=goodness_of_fit(
            np.bincount(pairs, minlength=size**2), (p1[:, None] * p2).ravel(), rng
        ),
        p_accepted=p_accepted,
        acceptance=float(kept.mean()),
        expected_acceptance=expected,
        standard_errors=(float(kept.mean()) - expected) / error,
    )


def _sample(law: str, rows: LawRows, runs: int, seed: int, make: Make) -> Sample:
    """All runs at once, each with noise of its own."""
    size, keys = len(rows.target1), mx.random.split(mx.random.key(seed))
    shape = (runs, _FORKS + 1, _POSITIONS)
    gumbels = mx.random.gumbel((*shape, size), key=keys[0])
    uniforms = mx.random.uniform(shape=shape, key=keys[1])
    arrays = LawArrays(*(mx.array(scores) for scores in rows))
    run = mx.vmap(lambda g, u: _two_tokens(make(law, LAW_PARAMS, TabledNoise(g, u)), arrays))
    columns = np.array(run(gumbels, uniforms), dtype=np.int64)
    return Sample(*columns.T)


class LawArrays(NamedTuple):
    """`LawRows` on the device."""

    target1: mx.array
    target2: mx.array
    target3: mx.array
    draft1: mx.array
    draft2: mx.array


def _two_tokens(law: Acceptance, rows: LawArrays) -> mx.array:
    """First and second emitted token, and drafts kept  # [3]."""
    size = rows.target1.shape[0]
    draft1 = rows.draft1[None]
    first = law.propose(draft1, 0)
    draft2 = mx.take(rows.draft2, first, axis=0)[None]
    second = law.propose(draft2, 1)
    after_both = mx.take(rows.target3.reshape(size * size, size), first * size + second, axis=0)
    target = mx.stack([rows.target1, mx.take(rows.target2, first, axis=0), after_both])
    verdict = law.accept(target, [draft1, draft2], mx.stack([first, second]), 0)
    token = mx.where(verdict.accepted > 0, first, verdict.next_token)
    after = mx.where(verdict.accepted > 1, second, verdict.next_token)
    # A round that kept nothing emitted one token; the second one is then a plain step's.
    step = law.accept(mx.take(rows.target2, token, axis=0)[None], [], NO_DRAFTS, 1)
    return mx.stack(
        [token, mx.where(verdict.accepted > 0, after, step.next_token), verdict.accepted]
    )


def _expected_acceptance(law: str, rows: LawRows) -> float:
    """The chance that the first draft stays, by the law on plain numbers."""
    total = 0.0
    for chance, targets, drafts, block in _blocks(rows):
        outcome = _OUTCOMES[law](targets, drafts, block)
        total += chance * (1.0 - outcome.accepted[0])
    return total


def _blocks(
    rows: LawRows,
) -> Iterator[tuple[float, list[list[float]], list[list[float]], list[int]]]:
    """Every block of two drafts: its chance, the three target rows, the two draft rows and the drafts."""
    target1, target2, target3, draft1, draft2 = (_chances(scores) for scores in rows)
    for first in np.flatnonzero(draft1):
        for second in np.flatnonzero(draft2[first]):
            yield (
                float(draft1[first] * draft2[first, second]),
                [row.tolist() for row in (target1, target2[first], target3[first, second])],
                [draft1.tolist(), draft2[first].tolist()],
                [int(first), int(second)],
            )


def _chances(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probabilities from log-probabilities, each row with a sum of 1, or 0 where no round comes."""
    chances: NDArray[np.float64] = np.exp(scores.astype(np.float64))
    totals = chances.sum(axis=-1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(
        chances, totals, out=np.zeros_like(chances), where=totals > 0
    )
    return shares
