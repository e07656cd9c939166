"""Packed weights stand for exactly the values that an independent packer gave them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from mtplx.runtime.loading.packed import is_packed, unpack
from tests.support import packers
from tests.support.tensorfile import Tensor, write_tensors
from tests.support.tiny_packed import BLOCKS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

STEM = "model.layers.0.mlp.up_proj"
WEIGHT = f"{STEM}.weight"


@pytest.fixture
def unpacked(tmp_path: Path) -> Any:
    """What `unpack` makes of stored tensors, which must be one plain weight."""

    def read(stored: dict[str, Tensor], block: dict[str, Any]) -> NDArray[np.float32]:
        write_tensors(tmp_path / "stored.safetensors", stored)
        weights = mx.load(str(tmp_path / "stored.safetensors"))
        assert isinstance(weights, dict)
        assert is_packed(weights)
        plain = unpack(weights, {"quantization_config": block}, mx.float32)
        assert list(plain) == [WEIGHT]
        return np.array(plain[WEIGHT])

    return read


def awq(group_size: int) -> dict[str, Any]:
    return {**BLOCKS["awq"], "group_size": group_size}


def gptq(bits: int, group_size: int, **extra: Any) -> dict[str, Any]:
    plain = {**BLOCKS["gptq"], "bits": bits, "group_size": group_size, "desc_act": False}
    return {**plain, **extra}


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    settings = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", **weights}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": settings}},
    }


@pytest.mark.parametrize(
    ("outputs", "inputs", "group_size"), [(8, 32, 32), (24, 96, 32), (40, 48, 16), (16, 56, -1)]
)
def test_awq_values(unpacked: Any, outputs: int, inputs: int, group_size: int) -> None:
    size = inputs if group_size == -1 else group_size
    codes = packers.random_codes(outputs, 4, packers.groups(inputs, size))
    found = unpacked(packers.store_awq(STEM, codes), awq(group_size))
    np.testing.assert_array_equal(found, codes.truth)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group_size", [32, -1])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("form", "offset"), [("gptq", 1), ("gptq_v2", 0)])
def test_gptq_values(
    unpacked: Any, bits: int, group_size: int, symmetric: bool, form: str, offset: int
) -> None:
    size = 96 if group_size == -1 else group_size
    codes = packers.random_codes(64, bits, packers.groups(96, size), symmetric=symmetric)
    stored = packers.store_gptq(STEM, codes, zero_offset=offset)
    block = gptq(bits, group_size, sym=symmetric, checkpoint_format=form)
    np.testing.assert_array_equal(unpacked(stored, block), codes.truth)


def test_three_bit_values_lie_across_words(unpacked: Any) -> None:
    codes = packers.random_codes(32, 3, packers.groups(32, 32))
    stored = packers.store_gptq(STEM, codes)
    assert stored[f"{STEM}.qweight"].shape == (3, 32)
    np.testing.assert_array_equal(unpacked(stored, gptq(3, 32)), codes.truth)


def test_gptq_needs_no_index_for_groups_in_turn(unpacked: Any) -> None:
    codes = packers.random_codes(16, 4, packers.groups(40, 16))
    stored = packers.store_gptq(STEM, codes, with_order=False)
    assert stored[f"{STEM}.scales"].shape == (3, 16)
    np.testing.assert_array_equal(unpacked(stored, gptq(4, 16)), codes.truth)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_gptq_inputs_reordered_by_activation_keep_their_groups(unpacked: Any, bits: int) -> None:
    order = packers.groups(128, 32, np.random.default_rng(7))
    codes = packers.random_codes(32, bits, order)
    stored = packers.store_gptq(STEM, codes)
    np.testing.assert_array_equal(unpacked(stored, gptq(bits, 32, desc_act=True)), codes.truth)


def test_gptq_rules_for_single_modules(unpacked: Any) -> None:
    codes = packers.random_codes(32, 8, packers.groups(64, 32))
    rules = {"-:.*lm_head": {}, "+:.*up_proj": {"bits": 8, "group_size": 32}}
    block = gptq(4, 64, dynamic=rules)
    np.testing.assert_array_equal(unpacked(packers.store_gptq(STEM, codes), block), codes.truth)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("strategy", ["group", "channel"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("outputs", "inputs"), [(16, 64), (5, 37), (13, 33), (1, 3)])
def test_compressed_words(
    unpacked: Any, bits: int, strategy: str, symmetric: bool, outputs: int, inputs: int
) -> None:
    size = 16 if strategy == "group" else inputs
    codes = packers.random_codes(outputs, bits, packers.groups(inputs, size), symmetric=symmetric)
    stored = packers.store_compressed(STEM, codes, with_zeros=not symmetric)
    sizes = {"group_size": 16} if strategy == "group" else {"group_size": None}
    block = compressed(
        "pack-quantized", num_bits=bits, strategy=strategy, symmetric=symmetric, **sizes
    )
    np.testing.assert_array_equal(unpacked(stored, block), codes.truth)


@pytest.mark.parametrize("symmetric", [True, False])
def test_compressed_words_reordered_by_activation(unpacked: Any, symmetric: bool) -> None:
    order = packers.groups(64, 16, np.random.default_rng(3))
    codes = packers.random_codes(8, 4, order, symmetric=symmetric)
    stored = packers.store_compressed(STEM, codes, with_zeros=not symmetric, with_order=True)
    block = compressed("pack-quantized", symmetric=symmetric, group_size=16, actorder="group")
    np.testing.assert_array_equal(unpacked(stored, block), codes.truth)


def test_zero_points_of_early_packs_are_one_a_byte(unpacked: Any) -> None:
    codes = packers.random_codes(8, 4, packers.groups(64, 16))
    stored = packers.store_compressed(STEM, codes)
    stored[f"{STEM}.weight_zero_point"] = packers.integers(codes.zeros - 8, "I8")
    block = compressed("pack-quantized", symmetric=False, group_size=16)
    np.testing.assert_array_equal(unpacked(stored, block), codes.truth)


def test_an_order_that_was_never_set_means_none(unpacked: Any) -> None:
    codes = packers.random_codes(8, 4, packers.groups(64, 16))
    stored = packers.store_compressed(STEM, codes)
    stored[f"{STEM}.weight_g_idx"] = packers.integers(np.full(64, -1), "I32")
    block = compressed("pack-quantized", symmetric=False, group_size=16)
    np.testing.assert_array_equal(unpacked(stored, block), codes.truth)


def test_modules_of_several_widths_are_told_apart(unpacked: Any) -> None:
    block = compressed("pack-quantized", group_size=16)
    wide = compressed("pack-quantized", num_bits=8, group_size=32)["config_groups"]["group_0"]
    block["config_groups"]["group_1"] = wide
    for bits, size in ((4, 16), (8, 32)):
        codes = packers.random_codes(8, bits, packers.groups(64, size), symmetric=True)
        stored = packers.store_compressed(STEM, codes, with_zeros=False)
        np.testing.assert_array_equal(unpacked(stored, block), codes.truth)


@pytest.mark.parametrize(("strategy", "size"), [("group", 16), ("channel", 40)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_int8_values(unpacked: Any, strategy: str, size: int, symmetric: bool) -> None:
    codes = packers.random_codes(12, 8, packers.groups(40, size), symmetric=symmetric)
    stored = packers.store_int8(STEM, codes, with_zeros=not symmetric)
    block = compressed(
        "int-quantized", num_bits=8, strategy=strategy, symmetric=symmetric, group_size=size
    )
    np.testing.assert_array_equal(unpacked(stored, block), codes.truth)


@pytest.mark.parametrize(
    ("strategy", "scale_shape"),
    [
        ("tensor", ()),
        ("tensor", (1,)),
        ("channel", (12, 1)),
        ("channel", (12,)),
        ("group", (12, 3)),
        ("block", (2, 3)),
    ],
)
def test_fp8_values(unpacked: Any, strategy: str, scale_shape: tuple[int, ...]) -> None:
    stored, values, scales = packers.random_fp8(STEM, (12, 40), scale_shape)
    block = compressed(
        "float-quantized",
        num_bits=8,
        type="float",
        strategy=strategy,
        group_size=16,
        block_structure=[8, 16],
    )
    if strategy == "channel":
        scales = scales.reshape(12, 1)
    elif strategy in ("group", "block"):
        rows = 1 if strategy == "group" else 8
        scales = np.repeat(np.repeat(scales, rows, axis=0)[:12], 16, axis=1)[:, :40]
    np.testing.assert_array_equal(unpacked(stored, block), values * scales)


def test_scales_of_activations_are_left_out(unpacked: Any) -> None:
    codes = packers.random_codes(8, 8, packers.groups(16, 16), symmetric=True)
    stored = packers.store_int8(STEM, codes, with_zeros=False)
    stored[f"{STEM}.input_scale"] = stored[f"{STEM}.weight_scale"]
    stored["model.layers.0.self_attn.k_scale"] = stored[f"{STEM}.weight_scale"]
    block = compressed("int-quantized", num_bits=8, strategy="channel")
    np.testing.assert_array_equal(unpacked(stored, block), codes.truth)


def test_the_result_has_the_type_asked_for_and_other_tensors_are_the_same_object() -> None:
    codes = packers.random_codes(8, 4, packers.groups(16, 16))
    bias, norm = mx.ones((8,)), mx.ones((8,), mx.float16)
    weights = {name: to_array(t) for name, t in packers.store_awq(STEM, codes).items()}
    weights |= {f"{STEM}.bias": bias, "model.norm.weight": norm}
    plain = unpack(weights, {"quantization_config": awq(16)}, mx.bfloat16)
    assert plain.pop(f"{STEM}.bias") is bias
    assert plain.pop("model.norm.weight") is norm
    rounded = mx.array(codes.truth).astype(mx.bfloat16)
    assert list(plain) == [WEIGHT]
    assert mx.array_equal(plain[WEIGHT], rounded)


def test_plain_weights_pass_untouched() -> None:
    weights = {WEIGHT: mx.ones((4, 4))}
    assert not is_packed(weights)
    assert unpack(weights, {}, mx.float32)[WEIGHT] is weights[WEIGHT]


def to_array(tensor: Tensor) -> mx.array:
    kinds = {"I32": "<i4", "F16": "<f2"}
    return mx.array(np.frombuffer(tensor.data, kinds[tensor.dtype]).reshape(tensor.shape))
