"""Packed tensors that lack a partner, or do not fit each other, are named: by headers alone where
these tell it, and again by whoever unpacks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.contracts.inspection import Tier, inspect_folder
from mtplx.runtime.loading.packed import unpack
from tests.support import packers
from tests.support.header_models import blank, config_of, mimo_head_names, trunk_names, write_model
from tests.support.tensorfile import Tensor, encode, write_tensors
from tests.support.tiny_packed import BLOCKS

if TYPE_CHECKING:
    from pathlib import Path

TRUNK = "model.layers.0.mlp.up_proj"
HEAD = "model.mtp_layers.0.mlp.up_proj"
IN_TURN = packers.groups(64, 16)
Stored = dict[str, Tensor]

GPTQ = BLOCKS["gptq"]
COMPRESSED = BLOCKS["compressed"]
BYTES = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}
    },
}


def stored(method: str, stem: str) -> Stored:
    codes = packers.random_codes(32, 4, IN_TURN)
    if method == "awq":
        return packers.store_awq(stem, codes)
    if method == "gptq":
        return packers.store_gptq(stem, codes)
    return packers.store_compressed(stem, codes, with_order=True)


def refused_by_both(
    folder: Path, tensors: Stored, block: dict[str, Any]
) -> tuple[CorruptModelError, CorruptModelError]:
    """The errors of the inspection and of unpacking."""
    names = blank(*trunk_names(2), *mimo_head_names())
    config = config_of("mimo", quantization_config=block)
    found = inspect_folder(write_model(folder, config, {**names, **tensors}))
    assert found.tier is Tier.CORRUPT
    assert isinstance(found.error, CorruptModelError)
    with pytest.raises(CorruptModelError) as caught:
        unpacked(folder, tensors, block)
    return found.error, caught.value


def unpacked(folder: Path, tensors: Stored, block: dict[str, Any]) -> dict[str, mx.array]:
    write_tensors(folder / "only.safetensors.tmp", tensors)
    (folder / "only.safetensors.tmp").rename(folder.parent / "only.safetensors")
    weights = mx.load(str(folder.parent / "only.safetensors"))
    assert isinstance(weights, dict)
    return unpack(weights, {"quantization_config": block}, mx.float32)


@pytest.mark.parametrize("stem", [TRUNK, HEAD])
@pytest.mark.parametrize(
    ("method", "part"),
    [
        *(("awq", part) for part in ("qweight", "qzeros", "scales")),
        *(("gptq", part) for part in ("qweight", "qzeros", "scales", "g_idx")),
        *(("compressed", f"weight_{part}") for part in ("packed", "scale", "shape", "zero_point")),
    ],
)
def test_a_missing_part_is_named(tmp_path: Path, stem: str, method: Any, part: str) -> None:
    tensors = stored(method, stem)
    del tensors[f"{stem}.{part}"]
    for error in refused_by_both(tmp_path / "model", tensors, BLOCKS[method]):
        assert re.search(rf"{re.escape(stem)}\.\w+", error.message)
        if part not in ("qweight", "weight_packed"):
            assert f"{stem}.{part} is missing" in error.message


def half(tensor: Tensor) -> Tensor:
    """The first half of the rows."""
    rows = tensor.shape[0] // 2
    data = tensor.data[: len(tensor.data) * rows // tensor.shape[0]]
    return Tensor(tensor.dtype, (rows, *tensor.shape[1:]), data)


@pytest.mark.parametrize(
    ("method", "part"),
    [
        *(("awq", part) for part in ("qweight", "qzeros", "scales")),
        *(("gptq", part) for part in ("qweight", "qzeros", "scales", "g_idx")),
        *(
            ("compressed", f"weight_{part}")
            for part in ("packed", "scale", "shape", "zero_point", "g_idx")
        ),
    ],
)
def test_a_part_of_another_shape_is_named(tmp_path: Path, method: Any, part: str) -> None:
    tensors = stored(method, HEAD)
    tensors[f"{HEAD}.{part}"] = half(tensors[f"{HEAD}.{part}"])
    if part == "weight_shape":
        with pytest.raises(CorruptModelError, match=f"{HEAD}.weight_shape"):
            unpacked_in(tmp_path, tensors, BLOCKS[method])
        return
    for error in refused_by_both(tmp_path / "model", tensors, BLOCKS[method]):
        assert HEAD in error.message


def unpacked_in(folder: Path, tensors: Stored, block: dict[str, Any]) -> None:
    (folder / "model").mkdir()
    unpacked(folder / "model", tensors, block)


@pytest.mark.parametrize("method", ["awq", "gptq", "compressed"])
def test_words_of_another_type_are_named(tmp_path: Path, method: Any) -> None:
    tensors = stored(method, TRUNK)
    name = next(iter(tensors))
    tensors[name] = Tensor("F32", tensors[name].shape, tensors[name].data)
    for error in refused_by_both(tmp_path / "model", tensors, BLOCKS[method]):
        assert f"{name} is F32" in error.message


@pytest.mark.parametrize("method", ["awq", "gptq", "compressed"])
def test_a_weight_that_is_packed_and_plain_is_named(tmp_path: Path, method: Any) -> None:
    tensors = stored(method, TRUNK)
    tensors[f"{TRUNK}.weight"] = encode(np.ones((32, 64)), "F32")
    for error in refused_by_both(tmp_path / "model", tensors, BLOCKS[method]):
        assert f"{TRUNK}.weight is stored twice" in error.message


def test_tensors_that_another_tool_packed_are_named(tmp_path: Path) -> None:
    for error in refused_by_both(tmp_path / "model", stored("gptq", TRUNK), COMPRESSED):
        assert TRUNK in error.message
        assert "compressed-tensors" in error.message


def test_bytes_without_scales_are_named(tmp_path: Path) -> None:
    codes = packers.random_codes(8, 8, packers.groups(16, 16), symmetric=True)
    tensors = packers.store_int8(TRUNK, codes, with_zeros=False)
    del tensors[f"{TRUNK}.weight_scale"]
    for error in refused_by_both(tmp_path / "model", tensors, BYTES):
        assert f"{TRUNK}.weight_scale is missing" in error.message


def test_bytes_of_a_kind_that_the_config_does_not_have_are_named(tmp_path: Path) -> None:
    tensors, _, _ = packers.random_fp8(TRUNK, (8, 16), (8, 1))
    for error in refused_by_both(tmp_path / "model", tensors, BYTES):
        assert f"{TRUNK}.weight (F8_E4M3" in error.message


@pytest.mark.parametrize("group", [-1, 4])
def test_an_index_of_groups_that_do_not_exist_is_named(tmp_path: Path, group: int) -> None:
    tensors = stored("gptq", HEAD)
    tensors[f"{HEAD}.g_idx"] = packers.integers(np.full(64, group), "I32")
    with pytest.raises(CorruptModelError, match=f"{HEAD}.g_idx names groups"):
        unpacked_in(tmp_path, tensors, GPTQ)


def test_an_order_that_the_config_denies_is_named(tmp_path: Path) -> None:
    tensors = stored("gptq", HEAD)
    tensors[f"{HEAD}.g_idx"] = packers.integers(IN_TURN[::-1], "I32")
    with pytest.raises(CorruptModelError, match=f"{HEAD}.g_idx mixes the groups"):
        unpacked_in(tmp_path, tensors, {**GPTQ, "desc_act": False})


@pytest.mark.parametrize("shape", [[32, 48], [32, 640], [31, 64]])
def test_a_true_shape_that_the_words_do_not_have_is_named(tmp_path: Path, shape: list[int]) -> None:
    tensors = stored("compressed", HEAD)
    tensors[f"{HEAD}.weight_shape"] = packers.integers(np.array(shape), "I64")
    with pytest.raises(CorruptModelError, match=HEAD):
        unpacked_in(tmp_path, tensors, COMPRESSED)


def test_a_compressed_order_beyond_the_groups_is_named(tmp_path: Path) -> None:
    tensors = stored("compressed", HEAD)
    tensors[f"{HEAD}.weight_g_idx"] = packers.integers(np.full(64, 4), "I32")
    with pytest.raises(CorruptModelError, match=f"{HEAD}.weight_g_idx"):
        unpacked_in(tmp_path, tensors, COMPRESSED)


@pytest.mark.parametrize("method", ["awq", "gptq", "compressed"])
@pytest.mark.parametrize("block", [None, {"bits": 4, "group_size": 64}])
def test_packed_weights_that_nothing_describes(
    tmp_path: Path, method: str, block: dict[str, Any] | None
) -> None:
    tensors = {**blank(*trunk_names(2), *mimo_head_names()), **stored(method, HEAD)}
    extra: dict[str, Any] = {} if block is None else {"quantization": block}
    found = inspect_folder(write_model(tmp_path, config_of("mimo", **extra), tensors))
    assert isinstance(found.error, UnsupportedModelError)
    assert HEAD in found.error.message
    with pytest.raises(UnsupportedModelError, match="does not say how"):
        unpack({f"{HEAD}.qweight": mx.zeros((1, 1), mx.int32)}, extra, mx.float32)


@pytest.mark.parametrize("shape", [(2, 2), (1,)])
def test_fp8_scales_that_do_not_fit_are_seen_in_the_headers(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    tensors = {
        f"{HEAD}.weight": encode(np.zeros((8, 8)), "F8_E4M3"),
        f"{HEAD}.weight_scale_inv": encode(np.ones(shape), "F32"),
    }
    for error in refused_by_both(tmp_path / "model", tensors, block):
        assert f"{HEAD}.weight: scales of shape" in error.message


def test_fp8_without_scales_is_seen_in_the_headers(tmp_path: Path) -> None:
    block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    tensors = blank(*trunk_names(2), *mimo_head_names())
    tensors[f"{HEAD}.weight"] = encode(np.zeros((8, 8)), "F8_E4M3")
    config = config_of("mimo", quantization_config=block)
    found = inspect_folder(write_model(tmp_path, config, tensors))
    assert isinstance(found.error, CorruptModelError)
    assert f"{HEAD}.weight_scale_inv is missing" in found.error.message
