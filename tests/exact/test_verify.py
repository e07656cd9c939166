"""Verification passes exact models and finds inexact ones; every check has its negative control."""

from __future__ import annotations

import dataclasses
import json
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import HeadMissingError, UsageError
from mtplx.contracts.runtime_contract import RuntimeContract
from mtplx.demo import demo_model_path
from mtplx.forge.verify.evidence import machine, timestamp
from mtplx.forge.verify.exactness import check_exactness, compare_answer
from mtplx.forge.verify.goodness import goodness_of_fit
from mtplx.forge.verify.law import LawResult, check_laws
from mtplx.forge.verify.prompts import encode_prompts
from mtplx.forge.verify.settings import VerifySettings
from mtplx.forge.verify.ties import Gap, first_difference, judge
from mtplx.forge.verify.verdict import VerifyVerdict
from mtplx.forge.verify.verify import Verification, verify_artifact
from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from mtplx.runtime.sampling.acceptance import Acceptance, make_acceptance
from mtplx.runtime.sampling.verdict import DraftScores, Verdict
from tests.support.checkpoints import require_checkpoint
from tests.support.tensorfile import decode, encode, read_tensors, write_tensors

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
        return dataclasses.replace(found, token_ids=tuple(wrong))


class NeverDrafts(Model):
    """Decodes plainly whatever depth is asked for."""

    __slots__ = ()

    def generate(self, prompt: Prompt, **options: Any) -> Generation:
        return Model.generate(self, prompt, **{**options, "depth": 0})


class OtherLogits:
    """A trunk whose logits are changed."""

    def __init__(self, trunk: Any) -> None:
        self._trunk = trunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trunk, name)


class LatecomersUnread(OtherLogits):
    """Rows behind the first of a forward are judged by the first: drafts stay that should not."""

    def logits(self, hidden: mx.array) -> mx.array:
        found: mx.array = self._trunk.logits(hidden)
        return mx.broadcast_to(found[:, :1], found.shape)


class Flat(OtherLogits):
    """All tokens are as likely as rounding can tell."""

    def logits(self, hidden: mx.array) -> mx.array:
        found: mx.array = self._trunk.logits(hidden)
        return found * 1e-6


class RowsTogetherDiffer(OtherLogits):
    """A forward over several rows prefers another token, as when rounding sends a row to another expert."""

    _is_alone = True

    def forward(self, tokens: mx.array, caches: Any) -> Any:
        self._is_alone = tokens.shape[1] == 1
        return self._trunk.forward(tokens, caches)

    def logits(self, hidden: mx.array) -> mx.array:
        found: mx.array = self._trunk.logits(hidden)
        return found if self._is_alone else found + 50.0 * (mx.arange(found.shape[-1]) == 7)


def changed(model: Model, kind: type[Model] = Model, **fields: Any) -> Model:
    """The same model as another `kind`, with other `fields`."""
    own = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    return kind(**{**own, **fields})


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
    # Both outcomes of a draft were tested at both depths.
    assert [count.depth for count in found.drafts] == [1, 3]
    assert all(0 < count.accepted < count.drafted for count in found.drafts)


def test_a_wrong_token_is_found_and_named(demo: Model) -> None:
    prompts = encode_prompts(demo, QUICK.prompts)
    found = check_exactness(changed(demo, Inexact), prompts, QUICK, quiet)
    assert not found.passed
    assert len(found.differences) == 3 * 2 * 2
    first = found.differences[0]
    assert (first.prompt, first.position) == ("code-1", WRONG_AT)
    assert first.found == (first.expected + 1) % demo.trunk.vocab_size
    assert first.gap is None or first.gap > first.tolerance


def test_drafts_kept_wrongly_fail_the_verification_and_the_place_is_named(demo: Model) -> None:
    broken = changed(demo, trunk=LatecomersUnread(demo.trunk))
    prompts = encode_prompts(demo, QUICK.prompts)
    exactness = check_exactness(broken, prompts, QUICK, quiet)
    law = LawResult((), (), QUICK.law_runs, 0.001)
    on = machine(demo.device)
    found = Verification(QUICK, tuple(prompts), exactness, law, None, on, timestamp())
    assert found.verdict is VerifyVerdict.EXACTNESS_FAILED
    assert found.exit_code == 10
    assert found.contract_fields()["exactness"]["passed"] is False

    options = {**QUICK.greedy, "max_tokens": QUICK.exact_tokens}
    expected = demo.generate(prompts[0].ids, depth=0, **options).token_ids
    emitted = broken.generate(prompts[0].ids, depth=1, **options).token_ids
    place = first_difference(expected, emitted)
    assert place is not None
    assert found.failure_reasons[0].startswith(
        f"prompt code-1, greedy, depth 1, chunk 1: token {place} is {emitted[place]}, plain "
        f"decoding gives {expected[place]} ("
    )


def test_a_model_that_never_drafts_is_not_called_exact(demo: Model) -> None:
    settings = dataclasses.replace(QUICK, prompts=("code-1",))
    prompts = encode_prompts(demo, settings.prompts)
    found = check_exactness(changed(demo, NeverDrafts), prompts, settings, quiet)
    assert found.differences == ()
    assert [count.drafted for count in found.drafts] == [0, 0]
    assert not found.passed


def test_comparing_goes_on_behind_a_tie(demo: Model) -> None:
    flat = changed(demo, Inexact, trunk=Flat(demo.trunk))
    prompt = encode_prompts(demo, ("code-1",))[0]
    expected = flat.generate(prompt.ids, depth=0, max_tokens=14, **QUICK.greedy).token_ids
    options = {**QUICK.greedy, "depth": 2}
    found = compare_answer(flat, prompt, expected, "greedy", options)
    assert found.difference is None
    assert found.tokens == 14
    # Each new beginning meets the wrong token again, at the same distance.
    assert [tie.position for tie in found.ties] == [WRONG_AT, 2 * WRONG_AT + 1]


def in_type(model: Model, dtype: str) -> dict[str, Any]:
    """The fields of a model that says it computes in `dtype`."""
    return {"device": {**model.device, "dtypes": [dtype]}}


def test_what_plain_forwards_over_several_rows_do_too_is_rounding_in_16_bits_only(
    demo: Model,
) -> None:
    prompt = encode_prompts(demo, ("code-1",))[0]
    trunk = RowsTogetherDiffer(demo.trunk)
    options = {**QUICK.greedy, "depth": 2}
    for dtype, is_excused in (("bfloat16", True), ("float32", False)):
        model = changed(demo, trunk=trunk, **in_type(demo, dtype))
        expected = model.generate(prompt.ids, depth=0, max_tokens=8, **QUICK.greedy).token_ids
        found = compare_answer(model, prompt, expected, "greedy", options)
        assert (found.difference is None) is is_excused
        partings = [*found.ties, *([found.difference] if found.difference else [])]
        readings = {parting.reading for parting in partings}
        assert readings == ({"3 rows at once"} if is_excused else {"token by token"})


def test_drafts_kept_wrongly_are_a_fault_in_16_bits_too(demo: Model) -> None:
    model = changed(demo, trunk=LatecomersUnread(demo.trunk), **in_type(demo, "bfloat16"))
    prompts = encode_prompts(demo, QUICK.prompts)
    assert not check_exactness(model, prompts, QUICK, quiet).passed


@pytest.mark.parametrize(
    ("gap", "is_tie"),
    [(0.0, True), (0.5e-3, True), (1e-3, True), (1.1e-3, False), (0.5, False), (None, False)],
)
def test_a_gap_is_a_tie_up_to_the_tolerance(gap: float | None, is_tie: bool) -> None:
    assert Gap(gap, 1e-3, "token by token").is_tie is is_tie


def test_the_gap_of_the_best_token_is_none_and_of_others_what_logits_say(demo: Model) -> None:
    ids = encode_prompts(demo, ("code-1",))[0].ids
    answer = demo.generate(ids, depth=0, max_tokens=4, **QUICK.greedy).token_ids
    logits = demo.trunk.logits(
        demo.trunk.forward(mx.array([[*ids, *answer[:3]]]), demo.trunk.make_caches()).after_norm
    )[0, -1]
    order = np.argsort(-np.array(logits))
    best, second = int(order[0]), int(order[1])
    assert best == answer[3]
    same = judge(demo, ids, answer[:3], best, best, QUICK.greedy)
    assert same.value == pytest.approx(0.0, abs=1e-6)
    assert same.is_tie
    other = judge(demo, ids, answer[:3], best, second, QUICK.greedy)
    assert other.value == pytest.approx(float(logits[best] - logits[second]), abs=1e-3)
    assert not other.is_tie


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_next"])
def test_other_attention_passes_too(shared_tiny: TinyFactory, family: Any) -> None:
    settings = dataclasses.replace(QUICK, prompts=("code-1",), exact_tokens=6)
    found = verify_artifact(shared_tiny(family), settings)
    assert found.verdict is VerifyVerdict.EXACTNESS_PASSED


def test_a_trained_checkpoint_passes() -> None:
    found = verify_artifact(require_checkpoint("qwen3_5"), QUICK)
    assert found.verdict is VerifyVerdict.EXACTNESS_PASSED
    assert found.exit_code == 0
    assert found.to_json()["rows"] == []
    assert found.contract_fields()["speed_evidence"] is None


def test_a_head_stored_wrongly_is_exact_and_a_collapse(tmp_path: Path) -> None:
    folder = shutil.copytree(demo_model_path(), tmp_path / "model")
    for path in folder.glob("*.safetensors"):
        tensors = read_tensors(path)
        for name in [name for name in tensors if name.endswith("input_proj.weight")]:
            shifted = np.roll(decode(tensors[name]), 1, axis=0)
            tensors[name] = encode(shifted, tensors[name].dtype)
        write_tensors(path, tensors)
    settings = dataclasses.replace(
        QUICK, prompts=("code-1",), exact_tokens=6, with_speed=True, repeats=1, max_tokens=24
    )
    found = verify_artifact(folder, settings)
    assert found.exactness.passed
    assert found.verdict is VerifyVerdict.MTP_ACCEPTANCE_COLLAPSED
    assert found.exit_code == 13
    assert found.contract_fields()["recommended_generation_mode"] == "ar"


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
    settings = dataclasses.replace(QUICK, prompts=("code-1",), exact_tokens=6)
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


def test_evidence_fits_a_contract_and_says_nothing_of_the_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = dataclasses.replace(
        QUICK, prompts=("code-1",), exact_tokens=6, with_speed=True, repeats=2, max_tokens=16
    )
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    found = verify_artifact(demo_model_path(), settings)
    text = json.dumps({**found.to_json(), "contract": found.contract_fields()}, allow_nan=False)
    for private in (str(demo_model_path()), str(Path.home()), "/tmp", platform.node()):
        assert private not in text
    parsed = RuntimeContract.model_validate(json.loads(json.dumps(found.contract_fields())))
    assert parsed.to_json() == RuntimeContract.model_validate(parsed.to_json()).to_json()
    assert parsed.verified_on is not None
    told = dict(parsed.verified_on)
    assert told["timestamp"] == "2023-11-14T22:13:20Z"
    assert told["versions"]["mlx-lm"]
    assert {"device", "back_end", "blas", "cores", "dtypes", "python"} <= told.keys()
    conditions = parsed.speed_evidence.conditions if parsed.speed_evidence else None
    assert conditions is not None
    assert conditions["prompts"] == {"code-1": found.prompts[0].sha256}
    assert (conditions["repeats"], conditions["max_tokens"]) == (2, 16)
    assert parsed.exactness is not None
    assert parsed.exactness.holds
    assert parsed.speed_evidence is not None
    assert parsed.speed_evidence.verdict == found.verdict
    assert parsed.mtp_depth_max == 3
    assert [row["depth"] for row in found.to_json()["rows"]] == [0, 1, 3]
    assert all(
        len(row["acceptance_by_position"]) == row["depth"] for row in found.to_json()["rows"]
    )


def test_a_time_that_is_none_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
        verify_artifact(tmp_path / "nowhere", QUICK)


def test_a_model_without_a_head_has_nothing_to_verify(tiny: TinyFactory) -> None:
    with pytest.raises(HeadMissingError, match="no MTP head that can be verified"):
        verify_artifact(tiny("qwen3_5", head=False), QUICK)
