"""Calibration finds how a trained head is wired and stored, whatever was done to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx
import mlx.nn as nn
import pytest

from mtplx.contracts.errors import CalibrationError
from mtplx.forge.calibrate.agreement import measure_agreement
from mtplx.forge.calibrate.calibration import Calibration, calibrate
from mtplx.forge.calibrate.norms import head_norms
from mtplx.forge.calibrate.texts import Text, calibration_texts
from mtplx.runtime.loading.arrays import named_parameters
from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from tests.support.checkpoints import TRAINED, TrainedName, require_checkpoint, trained_wiring

# Agreement at depth 1, 2, 3 on held-out code, measured when the heads were trained. The text here is another.
TRAINED_AGREEMENT = {
    "qwen3_5": (0.788, 0.771, 0.760),
    "qwen3_next": (0.754, 0.740, 0.733),
    "deepseek_v3": (0.652, 0.625, 0.612),
    "glm4_moe": (0.775, 0.763, 0.758),
    "mimo": (0.776, 0.764, 0.754),
}
POINTS = 0.08

slow = pytest.mark.slow
FAMILIES = [pytest.param(name, marks=() if name == "deepseek_v3" else slow) for name in TRAINED]
DAMAGED: tuple[TrainedName, ...] = ("qwen3_5", "deepseek_v3")

_loaded: dict[TrainedName, Model] = {}


def checkpoint(name: TrainedName) -> Model:
    if name not in _loaded:
        _loaded[name] = load(require_checkpoint(name))
    return _loaded[name]


@pytest.fixture(scope="module", autouse=True)
def _forget_models() -> Iterator[None]:
    yield
    _loaded.clear()


def chats(model: Model) -> list[Text]:
    return [text for text in calibration_texts(model) if text.domain == "chat"]


def module_of(model: Model) -> nn.Module:
    assert model.head is not None
    return model.head.module


def names_of(model: Model) -> tuple[str, ...]:
    assert model.head is not None
    return head_norms(model, model.head).names


@contextmanager
def damaged(model: Model, shift: dict[str, int]) -> Iterator[None]:
    """The head as it would be loaded from a file whose norms were stored shifted."""
    assert model.head is not None
    norms = head_norms(model, model.head)
    assert shift.keys() <= set(norms.names)
    with norms.shifted([shift.get(name, 0) for name in norms.names]):
        yield


@contextmanager
def other_weight(layer: nn.Module, weight: mx.array) -> Iterator[None]:
    stored, layer.weight = layer.weight, weight
    try:
        yield
    finally:
        layer.weight = stored


def check_inputs(name: TrainedName, found: Calibration) -> None:
    trained = trained_wiring(name)
    assert (found.wiring.feed, found.wiring.concat) == (trained.feed, trained.concat)


def check_recycle(name: TrainedName, found: Calibration) -> None:
    """As trained, which is not the default of DeepSeek and GLM."""
    assert found.wiring.recycle == trained_wiring(name).recycle
    if name == "glm4_moe":
        assert found.decided_by["recycle"] == "measured by likelihood"
        assert found.p_values["recycle"] < 1e-6


@pytest.mark.parametrize("name", FAMILIES)
def test_a_sound_head_keeps_its_norms_and_gets_the_wiring_it_was_trained_with(
    name: TrainedName,
) -> None:
    model = checkpoint(name)
    before = named_parameters(module_of(model))
    found = calibrate(model, calibration_texts(model))
    check_inputs(name, found)
    check_recycle(name, found)
    assert found.norm_shift == {}
    assert found.decided_by["concat"] == "measured"
    assert found.decided_by["norms"] == "measured"
    for measured, trained in zip(found.agreement, TRAINED_AGREEMENT[name], strict=True):
        assert abs(measured - trained) <= POINTS
    after = named_parameters(module_of(model))
    assert all(after[path] is before[path] for path in before)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("deepseek_v3", -1),
        pytest.param("deepseek_v3", 1, marks=slow),
        pytest.param("qwen3_5", -1, marks=slow),
        pytest.param("qwen3_5", 1, marks=slow),
    ],
)
def test_a_shift_missed_or_doubled_on_all_norms_is_found(name: TrainedName, stored: int) -> None:
    model = checkpoint(name)
    names = names_of(model)
    with damaged(model, dict.fromkeys(names, stored)):
        found = calibrate(model, chats(model))
    check_inputs(name, found)
    assert found.norm_shift == dict.fromkeys(names, -stored)


# Norms whose shift agreement can't tell from none, because their gains are nearly equal or matter little.
IMMATERIAL = {
    "qwen3_5": {"norm.weight"},
    "deepseek_v3": {
        "0.shared_head.norm.weight",
        "0.input_layernorm.weight",
        "0.self_attn.q_a_layernorm.weight",
    },
}
# The input norms of this stand-in, both shifted by +1: measured, the head then agrees with its trunk two points more
# often than as it was trained. Agreement takes what agrees most, so it cannot undo this one pair.
BALANCED = {"0.enorm.weight", "0.hnorm.weight"}
QWEN_RAW = [
    ("pre_fc_norm_embedding.weight", "layers.0.input_layernorm.weight"),
    ("layers.0.self_attn.q_norm.weight",),
    ("pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "norm.weight"),
    ("layers.0.self_attn.q_norm.weight", "layers.0.self_attn.k_norm.weight"),
    ("layers.0.post_attention_layernorm.weight", "pre_fc_norm_hidden.weight"),
]
NEXTN_RAW = [
    ("0.enorm.weight", "0.input_layernorm.weight"),
    ("0.enorm.weight", "0.hnorm.weight"),
    ("0.post_attention_layernorm.weight", "0.self_attn.kv_a_layernorm.weight"),
]


@slow
@pytest.mark.parametrize("stored", [-1, 1])
@pytest.mark.parametrize(
    ("name", "raw"),
    [*(("qwen3_5", raw) for raw in QWEN_RAW), *(("deepseek_v3", raw) for raw in NEXTN_RAW)],
)
def test_single_norms_in_another_convention_are_found(
    name: TrainedName, raw: tuple[str, ...], stored: int
) -> None:
    model = checkpoint(name)
    texts = calibration_texts(model)
    (sound,) = measure_agreement(model, texts, depths=1)
    with damaged(model, dict.fromkeys(raw, stored)):
        found = calibrate(model, texts)
    expected = dict.fromkeys(raw, -stored)
    off = {n for n in names_of(model) if found.norm_shift.get(n, 0) != expected.get(n, 0)}
    material = off - IMMATERIAL[name]
    assert not material or (material == BALANCED and found.agreement[0] > sound)
    assert found.agreement[0] >= sound - 0.02
    check_inputs(name, found)


@slow
@pytest.mark.parametrize("name", DAMAGED)
def test_halves_of_the_projection_that_were_swapped_are_found(name: TrainedName) -> None:
    model = checkpoint(name)
    projection = module_of(model).projection
    first, second = mx.split(projection.weight, 2, axis=1)
    with other_weight(projection, mx.concatenate([second, first], axis=1)):
        found = calibrate(model, chats(model))
    assert found.wiring.concat == "hidden_embedding"
    assert found.decided_by["concat"] == "measured"
    assert found.norm_shift == {}


@slow
@pytest.mark.parametrize("name", DAMAGED)
def test_a_head_of_noise_is_refused_with_the_best_scores(name: TrainedName) -> None:
    model = checkpoint(name)
    projection = module_of(model).projection
    noise = mx.random.normal(projection.weight.shape, key=mx.random.key(3)) * 0.05
    with (
        other_weight(projection, noise),
        pytest.raises(
            CalibrationError, match=r"expected at least 20%. Best: \d\.\d% .*feed"
        ) as raised,
    ):
        calibrate(model, chats(model))
    assert raised.value.exit_code == 12
