"""Quantised packs: mixed bits under either naming, widened on the CPU to what they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.mla import MultiLinear
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_lm.utils import load_model

from mtplx.contracts.errors import CorruptModelError
from mtplx.runtime.loading.folder import load
from mtplx.runtime.loading.quantization import (
    canonical_module,
    dequantize_modules,
    is_quantized,
    quantize_as_stored,
)
from tests.support import disk as damage
from tests.support.tiny_families import FAMILY_NAMES, FamilyName
from tests.unit.loading.reading import TOKENS, bind, head_logits, parameters, trunk_logits

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

SIDE = "mtp.safetensors"
PACK = {"layout": "mlx", "hidden": 64, "sidecar": SIDE}
FOUR = {"bits": 4, "group_size": 32}
EIGHT = {"bits": 8, "group_size": 32}
WIDE_EIGHT = {"bits": 8, "group_size": 64}


def packed_logits(folder: Path) -> Any:
    """What mlx-lm computes from the packed weights themselves, in float32."""
    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    assert is_quantized(model)
    return np.array(model(mx.array([TOKENS]))[0])


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("bits", [4, 8])
def test_the_widened_trunk_computes_what_the_packed_one_computes(
    tiny: TinyFactory, family: FamilyName, bits: int
) -> None:
    folder = tiny(family, **PACK, quantize={"bits": bits, "group_size": 32})
    model = load(folder)
    assert not is_quantized(model.trunk.model)
    np.testing.assert_allclose(trunk_logits(model), packed_logits(folder), atol=2e-3)


@pytest.mark.parametrize("naming", ["module", "checkpoint"])
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe", "qwen3_next", "glm4_moe"])
def test_mixed_bits_load_under_either_naming(
    tiny: TinyFactory, family: FamilyName, naming: str
) -> None:
    at = "language_model.model." if family.startswith("qwen3_5") else "model."
    mlp = "mlp" if family in ("qwen3_5", "glm4_moe") else "mlp.shared_expert"
    overrides = {
        f"{at}layers.0.{mlp}.up_proj": WIDE_EIGHT,
        f"{at}layers.0.{mlp}.down_proj": False,
        f"{at}layers.1.self_attn.q_proj": {"bits": 6, "group_size": 32},
    }
    how = {**FOUR, "overrides": overrides, "naming": naming}
    model = load(tiny(family, **PACK, quantize=how))
    exact = load(tiny(family, **PACK))
    difference = np.abs(trunk_logits(model) - trunk_logits(exact))
    assert 0 < np.median(difference) < 1.5
    assert not any("no module" in warning for warning in model.warnings)
    found, true = parameters(model.trunk.model), parameters(exact.trunk.model)
    untouched = f"{at}layers.0.{mlp}.down_proj.weight"
    np.testing.assert_array_equal(found[untouched], true[untouched])
    widths = {}
    for name in (f"layers.0.{mlp}.up_proj", f"layers.0.{mlp}.gate_proj"):
        weight = f"{at}{name}.weight"
        widths[name] = np.abs(found[weight] - true[weight]).max()
    eight, four = widths.values()
    assert 0 < eight * 4 < four


def test_both_namings_are_the_same_model(tiny: TinyFactory) -> None:
    up = "language_model.model.layers.0.mlp.up_proj"
    how = {**FOUR, "overrides": {up: WIDE_EIGHT}}
    one, other = (
        trunk_logits(load(tiny("qwen3_5", **PACK, quantize={**how, "naming": naming})))
        for naming in ("module", "checkpoint")
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe", "deepseek_v3", "glm4_moe", "mimo"])
def test_a_quantised_head_is_bound_and_widened(tiny: TinyFactory, family: FamilyName) -> None:
    packed = tiny(family, **PACK, quantize={**FOUR, "head": EIGHT})
    module, binding = bind(packed)
    assert is_quantized(module)
    assert binding.bound == len(parameters(module))
    loaded, exact = load(packed), load(tiny(family, **PACK, quantize=FOUR))
    assert loaded.head is not None
    assert not is_quantized(loaded.head.module)
    difference = np.abs(head_logits(loaded) - head_logits(exact))
    assert 0 < np.median(difference) < 0.2


def test_a_quantised_heads_own_widths_are_kept(tiny: TinyFactory) -> None:
    q_proj = "mtp.layers.0.self_attn.q_proj"
    how = {**FOUR, "head": EIGHT, "overrides": {q_proj: FOUR, "mtp.layers.0.mlp.up_proj": False}}
    module, _ = bind(tiny("qwen3_5", **PACK, quantize=how))
    assert module.block.self_attn.q_proj.bits == 4
    assert module.block.self_attn.k_proj.bits == 8
    assert not is_quantized(module.block.mlp.up_proj)


@pytest.mark.parametrize(
    ("layer", "plain"),
    [
        (nn.Linear(64, 8), nn.Linear),
        (nn.Linear(64, 8, bias=False), nn.Linear),
        (nn.Embedding(8, 64), nn.Embedding),
        (SwitchLinear(64, 8, 3), SwitchLinear),
        (MultiLinear(64, 8, 3), MultiLinear),
    ],
)
def test_every_kind_of_layer_is_widened_to_its_quantised_values(
    layer: nn.Module, plain: type[nn.Module]
) -> None:
    holder = nn.Module()
    holder.layer = layer
    nn.quantize(holder, group_size=32, bits=4)
    packed = holder.layer
    assert is_quantized(holder)
    expected = mx.dequantize(packed.weight, packed.scales, packed.biases, group_size=32, bits=4)
    dequantize_modules(holder)
    assert type(holder.layer) is plain
    assert mx.array_equal(holder.layer.weight, expected)
    assert ("bias" in holder.layer) == ("bias" in layer)


def test_a_map_that_contradicts_the_tensors_is_refused(tiny: TinyFactory) -> None:
    folder = tiny("mimo", **PACK, quantize=FOUR)
    block = damage.read_json(folder / "config.json")["quantization"]
    block["model.layers.0.mlp.up_proj"] = WIDE_EIGHT
    damage.edit_json(folder / "config.json", {"quantization": block})
    with pytest.raises(CorruptModelError, match=r"up_proj: config.json says bits 8, .* bits 4"):
        load(folder)


def test_a_map_entry_for_no_module_is_a_warning(tiny: TinyFactory) -> None:
    folder = tiny("mimo", **PACK, quantize=FOUR)
    block = damage.read_json(folder / "config.json")["quantization"]
    block["model.layers.1.mlp.side_proj"] = WIDE_EIGHT
    damage.edit_json(folder / "config.json", {"quantization": block})
    assert any("layers.1.mlp.side_proj" in warning for warning in load(folder).warnings)


@pytest.mark.parametrize("head", [False, True])
def test_a_map_may_name_modules_of_the_head(tiny: TinyFactory, head: bool) -> None:
    how = {**FOUR, "head": EIGHT} if head else FOUR
    folder = tiny("qwen3_5", **PACK, quantize=how)
    block = damage.read_json(folder / "config.json")["quantization"]
    assert any(key.startswith("mtp.") for key in block) == head
    assert not any("no module" in warning for warning in load(folder).warnings)


def test_a_layer_without_scales_stays_as_it_is() -> None:
    holder = nn.Module()
    holder.one, holder.two = nn.Linear(64, 64), nn.Linear(64, 64)
    packed, scales, biases = mx.quantize(holder.one.weight, group_size=32, bits=4)
    weights = {"one.weight": packed, "one.scales": scales, "one.biases": biases}
    assert quantize_as_stored(holder, weights, {"bits": 4, "group_size": 32}) == []
    assert isinstance(holder.one, nn.QuantizedLinear)
    assert isinstance(holder.two, nn.Linear)


@pytest.mark.parametrize(
    "path",
    [
        "model.layers.0.mlp.experts.3.up_proj",
        "language_model.model.layers.0.mlp.switch_mlp.up_proj",
        "model.language_model.layers.0.mlp.experts.up_proj",
        "layers.0.mlp.switch_mlp.up_proj",
    ],
)
def test_one_module_has_one_canonical_name(path: str) -> None:
    assert canonical_module(path) == "layers.0.mlp.switch_mlp.up_proj"
