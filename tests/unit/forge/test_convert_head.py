"""The head of an artifact computes what the source's computes, and holds what the recipe says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mtplx.contracts.errors import HeadWeightsError, InternalError, UsageError
from mtplx.contracts.identity import record_file
from mtplx.forge.convert.head import HEAD_FILE, apply_norm_shift
from mtplx.runtime.loading.folder import load
from tests.support.checkpoints import TRAINED, TrainedName, require_checkpoint
from tests.support.forged import (
    assert_close_logits,
    assert_same_logits,
    forge,
    recipe,
    write_head,
)
from tests.support.tensorfile import (
    Tensor,
    encode,
    read_header,
    read_tensors,
    read_values,
    write_tensors,
)
from tests.support.tiny import unpacked_copy
from tests.unit.forge.test_convert_trunk import RUNNABLE, stored

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory
    from tests.support.tiny_families import FamilyName

SIDE = "mtp.safetensors"
MLX = {"layout": "mlx", "hidden": 64, "sidecar": SIDE}
# Root mean square of the error of logits by their spread, for 8 bits a weight in groups of 64.
EIGHT_BITS = 0.05
FP8_ROUNDED = 0.02


def head_of(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the written head."""
    return read_tensors(folder / HEAD_FILE)


@pytest.mark.parametrize("name", TRAINED)
def test_a_trained_model_computes_the_same_bits_when_forged_losslessly(
    name: TrainedName, tmp_path: Path
) -> None:
    source = require_checkpoint(name)
    assert_same_logits(forge(source, tmp_path / "out", recipe()).folder, source)


@pytest.mark.parametrize("name", TRAINED)
def test_a_trained_model_computes_nearly_the_same_with_8_bits(
    name: TrainedName, tmp_path: Path
) -> None:
    source = require_checkpoint(name)
    made = forge(source, tmp_path / "out", recipe(8, mtp_policy="q8"))
    assert made.head.quantization == {"bits": 8, "group_size": 64, "mode": "affine"}
    assert_close_logits(made.folder, source, EIGHT_BITS)


@pytest.mark.parametrize("family", RUNNABLE)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "F32"},
        {"fused_experts": True},
        {"sidecar": SIDE},
        MLX,
        {**MLX, "quantize": {"bits": 4, "group_size": 32}},
        {**MLX, "quantize": {"bits": 4, "group_size": 32, "head": {"bits": 8, "group_size": 32}}},
        {"layout": "mlx", "hidden": 64, "norm_convention": "raw", "sidecar": SIDE},
    ],
    ids=["bf16", "f32", "fused", "sidecar", "mlx", "mlx-4bit", "mlx-head-8bit", "mlx-raw-head"],
)
def test_a_tiny_model_computes_the_same_bits_when_forged_losslessly(
    tiny: TinyFactory, family: FamilyName, options: dict[str, Any], tmp_path: Path
) -> None:
    source = tiny(family, **options)
    assert_same_logits(forge(source, tmp_path / "out", recipe()).folder, source)


@pytest.mark.parametrize("family", ["qwen3_5", "deepseek_v3", "glm4_moe", "mimo"])
@pytest.mark.parametrize("options", [{"fp8": True}, {"pack": "awq"}], ids=["fp8", "awq"])
def test_an_unpacked_model_computes_nearly_the_same(
    tiny: TinyFactory, family: FamilyName, options: dict[str, Any], tmp_path: Path
) -> None:
    source = tiny(family, hidden=128, **options)
    made = forge(source, tmp_path / "out", recipe())
    assert_close_logits(made.folder, unpacked_copy(source), FP8_ROUNDED)


@pytest.mark.parametrize("family", RUNNABLE)
def test_a_quantised_body_leaves_the_head_in_bfloat16(
    tiny: TinyFactory, family: FamilyName, tmp_path: Path
) -> None:
    source = tiny(family, hidden=64, dtype="F32")
    made = forge(source, tmp_path / "out", recipe(8))
    assert made.head.quantization is None
    for name, tensor in head_of(made.folder).items():
        is_vector = len(tensor.shape) == 1
        assert tensor.dtype == ("F32" if is_vector else "BF16"), name
    assert load(made.folder).head is not None


@pytest.mark.parametrize("family", RUNNABLE)
def test_the_q8_policy_packs_attention_and_mlp_only(
    tiny: TinyFactory, family: FamilyName, tmp_path: Path
) -> None:
    made = forge(tiny(family, hidden=128), tmp_path / "out", recipe(4, mtp_policy="q8"))
    found = head_of(made.folder)
    packed = {name for name, tensor in found.items() if tensor.dtype == "U32"}
    assert any(name.endswith("o_proj.weight") for name in packed)
    assert any(name.endswith("down_proj.weight") for name in packed)
    for name in packed:
        assert ".self_attn." in name or ".mlp." in name
        assert not name.endswith(("gate.weight", "norm.weight"))
    assert made.head.policy == "q8"
    assert load(made.folder).head is not None


def test_requantising_the_head_needs_to_be_allowed(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("mimo", hidden=128)
    how = recipe(4, mtp_policy="requantize")
    with pytest.raises(UsageError, match="--allow-degraded-mtp"):
        write_head(source, tmp_path, how)
    assert not (tmp_path / HEAD_FILE).exists()
    made = forge(source, tmp_path / "out", how, allow=True)
    assert made.head.quantization == {"bits": 4, "group_size": 64, "mode": "affine"}
    assert load(made.folder).head is not None


def test_a_head_that_mlx_quantised_stays_as_it_is_and_says_so(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    head = {"bits": 8, "group_size": 32}
    own = {"mtp.layers.0.mlp.up_proj": {"bits": 4, "group_size": 32}}
    source = tiny(
        "qwen3_5",
        **MLX,
        quantize={"bits": 4, "group_size": 32, "head": head, "overrides": own},
    )
    made = forge(source, tmp_path / "out", recipe(4, mtp_policy="q8"))
    published = read_tensors(source / SIDE)
    packed = {name: t for name, t in published.items() if t.dtype == "U32"}
    assert packed
    assert packed.items() <= head_of(made.folder).items()
    assert any("stays so" in note for note in made.head.notes)
    found = made.head.quantization
    assert found is not None
    bits = {
        module: found.get(module, found)["bits"]
        for module in ("layers.0.self_attn.q_proj", "layers.0.mlp.up_proj")
    }
    assert bits == {"layers.0.self_attn.q_proj": 8, "layers.0.mlp.up_proj": 4}


@pytest.mark.parametrize("family", ["deepseek_v3", "glm4_moe"])
def test_copies_of_the_vocabulary_are_dropped_and_listed(
    tiny: TinyFactory, family: FamilyName, tmp_path: Path
) -> None:
    record = write_head(tiny(family), tmp_path, recipe())
    assert record.dropped == {
        "model.layers.2.embed_tokens.weight": "a copy of the trunk's model.embed_tokens.weight",
        "model.layers.2.shared_head.head.weight": "a copy of the trunk's lm_head.weight",
    }
    assert not record.dropped.keys() & head_of(tmp_path).keys()


def test_copies_are_recognised_where_only_the_trunk_is_packed(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    source = tiny("deepseek_v3", **MLX, quantize={"bits": 4, "group_size": 32})
    record = write_head(source, tmp_path, recipe())
    assert len(record.dropped) == 2


def test_an_own_output_matrix_is_kept_and_used(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("glm4_moe", sidecar=SIDE)
    tensors = read_tensors(source / SIDE)
    name = "model.layers.2.shared_head.head.weight"
    changed = np.array(read_values(source / SIDE)[name])
    changed[0] *= 2
    tensors[name] = encode(changed, "BF16")
    write_tensors(source / SIDE, tensors)
    made = forge(source, tmp_path / "out", recipe())
    assert head_of(made.folder)[name] == tensors[name]
    assert list(made.head.dropped) == ["model.layers.2.embed_tokens.weight"]
    assert any(name in note for note in made.head.notes)
    assert_same_logits(made.folder, source)


@pytest.mark.parametrize("family", ["qwen3_5", "deepseek_v3", "mimo"])
def test_every_layer_of_the_head_is_written(
    tiny: TinyFactory, family: FamilyName, tmp_path: Path
) -> None:
    one = write_head(tiny(family, heads=1), tmp_path / "one", recipe())
    three = write_head(tiny(family, heads=3), tmp_path / "three", recipe())
    assert (one.mtp_layers, three.mtp_layers) == (1, 3)
    first = head_of(tmp_path / "one")
    found = head_of(tmp_path / "three")
    assert first.items() <= found.items()
    numbered = [name for name in first if not name.startswith("mtp.") or ".layers." in name]
    assert len(found) == len(first) + 2 * len(numbered)


@pytest.mark.parametrize("family", RUNNABLE)
def test_experts_are_stacked_and_latent_attention_is_split(
    tiny: TinyFactory, family: FamilyName, tmp_path: Path
) -> None:
    write_head(tiny(family), tmp_path, recipe())
    names = head_of(tmp_path)
    assert not any(".experts." in name or ".kv_b_proj." in name for name in names)
    has_experts = family not in ("qwen3_5", "mimo")
    assert any(".switch_mlp." in name for name in names) == has_experts
    assert any(".embed_q." in name for name in names) == (family == "deepseek_v3")


@pytest.mark.parametrize("convention", ["raw", "final"])
def test_gains_are_written_as_they_multiply_in_float32(
    tiny: TinyFactory, convention: str, tmp_path: Path
) -> None:
    source = tiny("qwen3_5", layout="mlx", norm_convention=convention, sidecar=SIDE)
    record = write_head(source, tmp_path, recipe())
    published = read_values(source / SIDE)
    for name, tensor in head_of(tmp_path).items():
        if name.endswith("norm.weight") or "pre_fc_norm" in name:
            assert tensor.dtype == "F32"
            gain = np.frombuffer(tensor.data, np.float32)
            np.testing.assert_array_equal(gain, published[name] + (convention == "raw"))
    assert any("told from its q/k norms" in note for note in record.notes)


def test_a_mixed_set_of_gains_is_kept_as_stored_for_calibration(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    source = tiny("qwen3_5", layout="mlx", norm_convention="mixed", sidecar=SIDE)
    record = write_head(source, tmp_path, recipe())
    assert any("kept as stored" in note and "pre_fc_norm" in note for note in record.notes)
    published = read_values(source / SIDE)
    name = "mtp.pre_fc_norm_embedding.weight"
    np.testing.assert_array_equal(read_values(tmp_path / HEAD_FILE)[name], published[name])


@pytest.mark.parametrize(
    ("family", "gain", "name"),
    [
        ("qwen3_5", "pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_embedding.weight"),
        ("deepseek_v3", "0.enorm.weight", "model.layers.2.enorm.weight"),
        ("mimo", "1.final_layernorm.weight", "model.mtp_layers.1.final_layernorm.weight"),
    ],
)
def test_single_gains_are_shifted_in_place(
    tiny: TinyFactory, family: FamilyName, gain: str, name: str, tmp_path: Path
) -> None:
    made = forge(tiny(family, heads=2), tmp_path / "out", recipe())
    path = made.folder / HEAD_FILE
    before, header = read_values(path), read_header(path)[0]
    record = apply_norm_shift(path, {gain: 1})
    after = read_values(path)
    assert record == record_file(path)
    assert read_header(path)[0] == header
    np.testing.assert_array_equal(after.pop(name), before.pop(name) + 1)
    for other, value in before.items():
        np.testing.assert_array_equal(after[other], value)
    assert apply_norm_shift(path, {gain: -1}) == made.head.file
    assert apply_norm_shift(path, {}) == made.head.file


def test_a_shift_of_a_gain_that_is_not_there_is_our_error(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    made = forge(tiny("mimo"), tmp_path / "out", recipe())
    with pytest.raises(InternalError, match=r"0\.enorm\.weight"):
        apply_norm_shift(made.folder / HEAD_FILE, {"0.enorm.weight": 1})
    assert record_file(made.folder / HEAD_FILE) == made.head.file


def test_tensors_that_the_layout_does_not_know_are_an_error(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    source = tiny("mimo", sidecar=SIDE)
    odd = encode(np.ones((2, 2), np.float32), "BF16")
    tensors = {**read_tensors(source / SIDE), "model.mtp_layers.0.odd_proj.weight": odd}
    write_tensors(source / SIDE, tensors)
    with pytest.raises(HeadWeightsError, match="odd_proj"):
        write_head(source, tmp_path, recipe())


def test_converting_twice_makes_the_same_bytes(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("deepseek_v3", hidden=64)
    how = recipe(4, mtp_policy="q8")
    first, second = (forge(source, tmp_path / name, how) for name in ("a", "b"))
    assert first.files == second.files
    assert first.head == second.head


def test_a_forged_head_forged_again_is_the_same(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("qwen3_5")
    first = forge(source, tmp_path / "a", recipe())
    again = forge(first.folder, tmp_path / "b", recipe())
    assert again.head.file == first.head.file
    assert stored(again.folder) == stored(first.folder)
