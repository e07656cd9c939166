"""Experts one by one, fused and stacked are the same experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import CorruptModelError
from mtplx.runtime.loading.arrays import stack_experts, unfuse_experts
from mtplx.runtime.loading.folder import load
from tests.support.tiny_families import NEXTN, FamilyName
from tests.unit.loading.reading import bind, head_logits, parameters

if TYPE_CHECKING:
    from tests.conftest import TinyFactory

SPARSE: tuple[FamilyName, ...] = ("qwen3_5_moe", "qwen3_next", *NEXTN)


@pytest.mark.parametrize("family", SPARSE)
def test_every_spelling_of_the_heads_experts_loads_to_the_same_head(
    tiny: TinyFactory, family: FamilyName
) -> None:
    separate = load(tiny(family))
    assert separate.head is not None
    expected = parameters(separate.head.module)
    for spelling in ({"fused_experts": True}, {"stacked_experts": True}):
        folder = tiny(family, **spelling)
        module, binding = bind(folder)
        found = parameters(module)
        assert found.keys() == expected.keys()
        assert binding.bound == len(expected)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
        np.testing.assert_array_equal(head_logits(load(folder)), head_logits(separate))


def test_stacking_sorts_experts_by_number() -> None:
    names = {f"layers.0.mlp.experts.{e}.up_proj.weight": mx.full((2, 3), e) for e in range(11)}
    shuffled = dict(sorted(names.items()))  # 10 comes before 2
    (stacked,) = stack_experts(shuffled).values()
    assert stacked[:, 0, 0].tolist() == list(range(11))


def test_scales_and_biases_are_stacked_like_weights() -> None:
    parts = ("weight", "scales", "biases")
    names = {f"mlp.experts.{e}.up_proj.{part}": mx.zeros((2,)) for e in range(2) for part in parts}
    assert set(stack_experts(names)) == {f"mlp.switch_mlp.up_proj.{part}" for part in parts}


def test_a_hole_among_experts_is_named() -> None:
    names = {f"mlp.experts.{e}.up_proj.weight": mx.zeros((2,)) for e in (0, 2, 4)}
    with pytest.raises(CorruptModelError, match=r"experts \[1, 3\] of 0\.\.4"):
        stack_experts(names)


def test_the_gate_is_the_first_half_of_a_fused_pair() -> None:
    gate, up = mx.ones((2, 3, 4)), mx.zeros((2, 3, 4))
    fused = {"mlp.experts.gate_up_proj": mx.concatenate([gate, up], axis=1)}
    split = unfuse_experts(fused)
    assert mx.array_equal(split["mlp.switch_mlp.gate_proj.weight"], gate)
    assert mx.array_equal(split["mlp.switch_mlp.up_proj.weight"], up)


def test_other_tensors_pass_through_unchanged() -> None:
    others = {"mlp.gate.weight": mx.zeros((2,)), "mlp.shared_experts.up_proj.weight": mx.ones((2,))}
    assert unfuse_experts(stack_experts(others)) == others
