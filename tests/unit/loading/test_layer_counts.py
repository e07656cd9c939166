"""The head lies right behind the trunk, whatever number that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mtplx.runtime.loading.folder import load
from tests.support.disk import INDEX, shard_files
from tests.support.tensorfile import encode, read_tensors, write_tensors
from tests.support.tiny_families import NEXTN, FamilyName
from tests.unit.loading.reading import disk, head_logits, parameters, trunk_logits

if TYPE_CHECKING:
    from tests.conftest import TinyFactory

SMALL = {"hidden": 16, "vocab": 40}


@pytest.mark.parametrize("family", NEXTN)
@pytest.mark.parametrize("layers", [2, 61, 78])
def test_trunk_and_head_keep_their_layers(
    tiny: TinyFactory, family: FamilyName, layers: int
) -> None:
    folder = tiny(family, layers=layers, **SMALL)
    stored, model = disk(folder), load(folder)
    assert model.head is not None
    trunk, head = parameters(model.trunk.model), parameters(model.head.module)
    for layer in {0, 1, layers - 1} | ({6, 61, 62} if layers == 78 else set()):
        name = f"model.layers.{layer}.self_attn.o_proj.weight"
        np.testing.assert_array_equal(trunk[name], stored[name])
        experts = f"model.layers.{layer}.mlp.switch_mlp.down_proj.weight"
        for e in range(4 if experts in trunk else 0):
            one = stored[f"model.layers.{layer}.mlp.experts.{e}.down_proj.weight"]
            np.testing.assert_array_equal(trunk[experts][e], one)
    np.testing.assert_array_equal(
        head["projection.weight"], stored[f"model.layers.{layers}.eh_proj.weight"]
    )
    assert not any(f"layers.{layers}." in name for name in trunk)
    for logits in (trunk_logits(model), head_logits(model)):
        assert np.isfinite(logits).all()
        assert np.ptp(logits) > 0.1


def test_layer_61_of_a_deeper_trunk_takes_part(tiny: TinyFactory) -> None:
    folder = tiny("deepseek_v3", layers=63, **SMALL)
    model = load(folder)
    expected = trunk_logits(model)
    layer = model.trunk.layers[61]
    layer.self_attn.o_proj.weight = layer.self_attn.o_proj.weight * 0
    assert not np.allclose(trunk_logits(model), expected, atol=1e-4)


def test_a_converted_deeper_trunk_keeps_layer_61(tiny: TinyFactory) -> None:
    folder = tiny("deepseek_v3", layers=63, **SMALL)
    model = load(folder)
    expected = trunk_logits(model)
    head = {n: t for p in shard_files(folder) for n, t in read_tensors(p).items() if ".63." in n}
    converted = {n: encode(v, "F32") for n, v in parameters(model.trunk.model).items()}
    for path in (*shard_files(folder), folder / INDEX):
        path.unlink()
    write_tensors(folder / "model.safetensors", {**converted, **head}, made_by="mlx")
    again = load(folder)
    assert again.has_head
    np.testing.assert_allclose(trunk_logits(again), expected, atol=1e-5)
