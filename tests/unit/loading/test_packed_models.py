"""Whole models with packed trunk and head compute with the dequantised values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mtplx.contracts.inspection import Tier, inspect_folder
from mtplx.runtime.loading.folder import float32_bytes, load
from tests.support.tiny import unpacked_copy
from tests.unit.loading.reading import head_logits, trunk_logits

if TYPE_CHECKING:
    from tests.conftest import TinyFactory
    from tests.support.tiny_families import FamilyName
    from tests.support.tiny_packed import Pack

PACKS: list[Pack] = ["awq", "gptq", "compressed"]
PARTS = {"awq": "qweight", "gptq": "qweight", "compressed": "weight_packed"}


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe", "glm4_moe", "mimo"])
def test_logits_are_those_of_the_plain_weights(
    tiny: TinyFactory, family: FamilyName, pack: Pack
) -> None:
    folder = tiny(family, pack=pack)
    packed, plain = load(folder), load(unpacked_copy(folder))
    np.testing.assert_array_equal(trunk_logits(packed), trunk_logits(plain))
    np.testing.assert_array_equal(head_logits(packed), head_logits(plain))


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("qwen3_5", ("mtp.fc", "mtp.layers.0.mlp.gate_proj")),
        ("glm4_moe", ("model.layers.2.eh_proj", "model.layers.2.mlp.experts.3.down_proj")),
    ],
)
def test_a_packed_head_is_found_with_its_projection(
    tiny: TinyFactory, family: FamilyName, names: tuple[str, str], pack: Pack
) -> None:
    found = inspect_folder(tiny(family, pack=pack))
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert found.can_use_head
    assert {f"{name}.{PARTS[pack]}" for name in names} <= set(found.head.tensor_names)
    assert not found.warnings


@pytest.mark.parametrize("pack", PACKS)
def test_memory_is_counted_by_the_values_that_words_hold(tiny: TinyFactory, pack: Pack) -> None:
    folder = tiny("mimo", pack=pack)
    packed, plain = inspect_folder(folder), inspect_folder(unpacked_copy(folder))
    assert packed.index is not None
    assert plain.index is not None
    partners = ("zeros", "scales", "g_idx", "weight_scale", "weight_zero_point", "weight_shape")
    small = sum(
        tensor.nbytes for name, tensor in packed.index.tensors.items() if name.endswith(partners)
    )
    counted = float32_bytes(packed.index, packed.quantization)
    exact = float32_bytes(plain.index)
    assert exact <= counted <= exact + 4 * small
