"""FP8 block checkpoints stand for the values that their scales give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.contracts.quantization import fp8_block
from mtplx.runtime.loading.folder import load
from mtplx.runtime.loading.packed import is_packed, unpack
from tests.support import disk as damage
from tests.support import fp8
from tests.support.tensorfile import encode, read_tensors, write_tensors
from tests.support.tiny import fp8_truth
from tests.support.tiny_families import FAMILY_NAMES, FamilyName
from tests.unit.loading.reading import disk, head_logits, trunk_logits

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

# Wide enough for a second, partial block.
WIDE = 160


def true_folder(folder: Path) -> Path:
    """The same folder with every FP8 tensor replaced by the float32 values it stands for."""
    truth = fp8_truth(folder)
    for path in damage.shard_files(folder):
        tensors = read_tensors(path)
        kept = {
            name: encode(truth[name], "F32") if tensor.dtype == "F8_E4M3" else tensor
            for name, tensor in tensors.items()
            if not name.endswith("_scale_inv")
        }
        write_tensors(path, kept)
    damage.edit_weight_map(
        folder, lambda names: {n: f for n, f in names.items() if not n.endswith("_scale_inv")}
    )
    damage.edit_json(folder / "config.json", {"quantization_config": ...})
    return folder


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_trunk_and_head_compute_with_the_dequantised_values(
    tiny: TinyFactory, family: FamilyName
) -> None:
    packed = load(tiny(family, fp8=True, hidden=WIDE))
    plain = load(true_folder(tiny(family, fp8=True, hidden=WIDE)))
    np.testing.assert_allclose(trunk_logits(packed), trunk_logits(plain), atol=1e-4)
    if family != "llama":
        np.testing.assert_allclose(head_logits(packed), head_logits(plain), atol=1e-4)


def test_a_matrix_of_several_blocks_is_scaled_block_by_block(tiny: TinyFactory) -> None:
    folder = tiny("mimo", fp8=True, hidden=WIDE)
    name = "model.mtp_layers.0.mlp.up_proj.weight"
    assert disk(folder)[f"{name}_scale_inv"].shape == (3, 2)
    head = load(folder).head
    assert head is not None
    loaded = np.array(head.module.block.mlp.up_proj.weight)
    np.testing.assert_allclose(loaded, fp8_truth(folder)[name], rtol=1e-6)


def test_every_code_has_its_value() -> None:
    codes = np.array([c for c in range(256) if c & 0x7F != 0x7F], np.uint8)[None]
    weights = {"w": mx.array(codes), "w_scale_inv": mx.array([[2.0, 2.0]])}
    assert is_packed(weights)
    found = unpack(weights, {}, mx.float32)
    assert not is_packed(found)
    np.testing.assert_array_equal(np.array(found["w"]), fp8.from_codes(codes) * 2)


def test_scales_of_another_shape_are_refused(tiny: TinyFactory) -> None:
    folder = tiny("mimo", fp8=True)
    path, name = damage.find_tensor(folder, r"layers\.0\..*up_proj.weight_scale_inv")
    damage.replace_tensor(path, name, encode(np.ones((2, 2), np.float32), "F32"))
    with pytest.raises(CorruptModelError, match=r"up_proj.*\(2, 2\), expected \(1, 1\)"):
        load(folder)


def test_scales_without_a_weight_are_refused() -> None:
    with pytest.raises(CorruptModelError, match="w_scale_inv has no weight"):
        unpack({"w_scale_inv": mx.ones((1, 1))}, {}, mx.float32)


@pytest.mark.parametrize("found", ["128", [128], [128, 0], [1.5, 2]])
def test_a_bad_block_size_is_refused(found: object) -> None:
    with pytest.raises(UnsupportedModelError, match="weight_block_size"):
        fp8_block({"quantization_config": {"weight_block_size": found}})


def test_blocks_are_128_by_128_when_nothing_is_said() -> None:
    assert fp8_block({}) == (128, 128)
    assert fp8_block({"quantization_config": {"weight_block_size": [64, 32]}}) == (64, 32)
