"""Verification passes exact models and finds inexact ones; every check has its negative control."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import HeadMissingError
from mtplx.contracts.runtime_contract import RuntimeContract
from mtplx.demo import demo_model_path
from mtplx.forge.verify.exactness import check_exactness
from mtplx.forge.verify.goodness import goodness_of_fit
from mtplx.forge.verify.law import check_laws
from mtplx.forge.verify.prompts import encode_prompts
from mtplx.forge.verify.settings import VerifySettings
from mtplx.forge.verify.ties import judge
from mtplx.forge.verify.verdict import VerifyVerdict
from mtplx.forge.verify.verify import verify_artifact
from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from mtplx.runtime.sampling.acceptance import Acceptance, make_acceptance
from mtplx.runtime.sampling.verdict import DraftScores, Verdict

if TYPE_CHECKING:
    from mtplx.runtime.decode.result import Generation
    from mtplx.runtime.model import Prompt
    from mtplx.runtime.sampling.noise import Noise
    from mtplx.runtime.sampling.params import SamplingParams
    from tests.conftest import TinyFactory

QUICK = VerifySettings(
    depths=(1, 3),
    prompts=("code-1", "prose-1", "chat-1"),
    seeds=(1,),
    exact_tokens=12,
    law_runs=4096,
    with_speed=False,
)
WRONG_AT = 5


def quiet(_label: str, _fraction: float) -> None:
    """No progress."""


class Inexact(Model):
    """Emits another token in one place whenever it drafts."""

    __slots__ = ()

    def generate(self, prompt: Prompt, **options: Any) -> Generation:
        found = Model.generate(self, prompt, **options)
        if not options.get("depth") or len(found.token_ids) <= WRONG_AT:
            return found
        wrong = list(found.token_ids)
        wrong[WRONG_AT] = (wrong[WRONG_AT] + 1) % self.trunk.vocab_size
        return dataclasses.replace(found, token_ids=wrong)


class KeepsTooMany:
    """Rejection that keeps a first draft which the law rejects, every time."""

    def __init__(self, law: Acceptance) -> None:
        self._law = law
        self.name = law.name

    def propose(self, scores: mx.array, position: int) -> mx.array:
        return self._law.propose(scores, position)

    def accept(self, target: mx.array, draft: DraftScores, drafts: mx.array, first: int) -> Verdict:
        found = self._law.accept(target, draft, drafts, first)
        if drafts.shape[0] == 0:
            return found
        return Verdict(mx.maximum(found.accepted, 1), found.next_token)


def keeps_too_many(name: str, params: SamplingParams, noise: Noise) -> Acceptance:
    return KeepsTooMany(make_acceptance(name, params, noise))


@pytest.fixture(scope="module")
def demo() -> Model:
    return load(demo_model_path())


def test_an_exact_model_passes(demo: Model) -> None:
    prompts = encode_prompts(demo, QUICK.prompts)
    found = check_exactness(demo, prompts, QUICK, quiet)
    assert found.passed
    # Three prompts, greedy and one seed, two depths, twelve tokens each.
    assert found.tokens == 3 * 2 * 2 * 12
    assert found.ties == ()


def test_a_wrong_token_is_found_and_named(demo: Model) -> None:
    fields = {field.name: getattr(demo, field.name) for field in dataclasses.fields(demo)}
    prompts = encode_prompts(demo, QUICK.prompts)
    found = check_exactness(Inexact(**fields), prompts, QUICK, quiet)
    assert not found.passed
    assert len(found.differences) == 3 * 2 * 2
    first = found.differences[0]
    assert (first.prompt, first.position) == ("code-1", WRONG_AT)
    assert first.found == (first.expected + 1) % demo.trunk.vocab_size
    assert first.gap is None or first.gap > first.tolerance


def test_the_gap_of_the_best_token_is_none_and_of_others_what_logits_say(demo: Model) -> None:
    ids = encode_prompts(demo, ("code-1",))[0].ids
    answer = demo.generate(ids, depth=0, max_tokens=4, **QUICK.greedy).token_ids
    logits = demo.trunk.logits(
        demo.trunk.forward(mx.array([[*ids, *answer[:3]]]), demo.trunk.make_caches()).after_norm
    )[0, -1]
    order = np.argsort(-np.array(logits))
    best, second = int(order[0]), int(order[1])
    assert best == answer[3]
    same = judge(demo, ids, answer[:3], (best, best), QUICK.greedy)
    assert same.value == pytest.approx(0.0, abs=1e-6)
    assert same.is_tie
    other = judge(demo, ids, answer[:3], (best, second), QUICK.greedy)
    assert other.value == pytest.approx(float(logits[best] - logits[second]), abs=1e-3)
    assert not other.is_tie


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_next"])
def test_other_attention_passes_too(shared_tiny: TinyFactory, family: Any) -> None:
    settings = dataclasses.replace(QUICK, prompts=("code-1",), exact_tokens=6)
    found = verify_artifact(shared_tiny(family), settings)
    assert found.verdict is VerifyVerdict.EXACTNESS_PASSED


def test_the_laws_hold_on_rows_of_the_model(demo: Model) -> None:
    found = check_laws(demo, encode_prompts(demo, QUICK.prompts), QUICK, quiet)
    assert found.passed
    assert {check.law for check in found.checks} == {"rejection", "block"}
    # Where target and draft agree fully, or not at all, nothing would be tested.
    assert all(0.2 < check.expected_acceptance < 0.8 for check in found.checks)


def test_a_law_that_keeps_too_many_drafts_is_found(demo: Model) -> None:
    prompts = encode_prompts(demo, QUICK.prompts)
    found = check_laws(demo, prompts, QUICK, quiet, make=keeps_too_many)
    assert not found.passed
    assert {check.law for check in found.failed} == {"rejection", "block"}
    assert all(check.p_first < found.threshold for check in found.failed)


def test_a_law_that_is_broken_fails_the_verification() -> None:
    settings = dataclasses.replace(QUICK, prompts=("code-1",), exact_tokens=4)
    found = verify_artifact(demo_model_path(), settings, make=keeps_too_many)
    assert found.verdict is VerifyVerdict.EXACTNESS_FAILED
    assert found.exit_code == 10
    assert "rejection does not follow its law" in found.failure_reasons[0]
    fields = found.contract_fields()
    assert fields["exactness"]["passed"] is False
    assert fields["exactness"]["law"]["passed"] is False


def test_goodness_of_fit_knows_fair_draws_from_loaded_ones() -> None:
    rng, law = np.random.default_rng(1), np.array([0.5, 0.3, 0.15, 0.05, 0.0])
    fair = [
        goodness_of_fit(rng.multinomial(2000, law).astype(np.int64), law, rng) for _ in range(60)
    ]
    assert min(fair) > 1e-3
    assert 0.25 < float(np.mean(fair)) < 0.75
    loaded = np.array([0.45, 0.35, 0.15, 0.05, 0.0])
    assert goodness_of_fit(rng.multinomial(2000, loaded).astype(np.int64), law, rng) < 1e-3
    assert goodness_of_fit(np.array([5, 3, 2, 0, 1]), law, rng) == 0.0


def test_evidence_fits_a_contract_and_says_nothing_of_the_owner() -> None:
    settings = dataclasses.replace(
        QUICK, prompts=("code-1",), exact_tokens=4, with_speed=True, repeats=2, max_tokens=16
    )
    found = verify_artifact(demo_model_path(), settings)
    text = json.dumps({**found.to_json(), "contract": found.contract_fields()}, allow_nan=False)
    for private in (str(demo_model_path()), "/home", "/root", "/work", "/tmp"):
        assert private not in text
    parsed = RuntimeContract.model_validate(found.contract_fields())
    assert parsed.exactness is not None
    assert parsed.exactness.holds
    assert parsed.speed_evidence is not None
    assert parsed.speed_evidence.verdict == found.verdict
    assert parsed.mtp_depth_max == 3
    assert [row["depth"] for row in found.to_json()["rows"]] == [0, 1, 3]
    assert all(
        len(row["acceptance_by_position"]) == row["depth"] for row in found.to_json()["rows"]
    )


def test_a_model_without_a_head_has_nothing_to_verify(tiny: TinyFactory) -> None:
    with pytest.raises(HeadMissingError, match="no MTP head"):
        verify_artifact(tiny("qwen3_5", head=False), QUICK)
