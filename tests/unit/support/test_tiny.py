from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import load_model
from safetensors import safe_open

from tests.support import fp8
from tests.support.tensorfile import decode, read_tensors, read_values, round_to
from tests.support.tiny import WINDOW, build_tiny, fp8_truth
from tests.support.tiny_families import FAMILY_NAMES, QWEN, FamilyName

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

IDS = [3, 1, 4, 1, 5, 9, 2, 6]
HEADED: tuple[FamilyName, ...] = FAMILY_NAMES[:-1]


def stock_logits(folder: Path) -> Any:
    """Float32 logits [T, V] of the folder as stock mlx-lm loads it, strictly."""
    model, _ = load_model(folder, strict=True)
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([IDS]))[0])


def all_tensors(folder: Path) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for path in folder.rglob("*.safetensors"):
        tensors |= read_tensors(path)
    return tensors


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_trunk_loads_in_stock_mlx_lm_with_lively_logits(
    tiny: TinyFactory, family: FamilyName, dtype: str
) -> None:
    logits = stock_logits(tiny(family, head=False, dtype=dtype))
    assert logits.shape == (len(IDS), 64)
    assert np.isfinite(logits).all()
    assert 1 < logits.std() < 5
    assert len(set(logits.argmax(-1))) > 3
    assert logits.argmax(-1).max() < 60, "special tokens stay unlikely"


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_both_layouts_of_a_seed_are_the_same_model(tiny: TinyFactory, family: FamilyName) -> None:
    published = stock_logits(tiny(family, head=False))
    assert np.array_equal(published, stock_logits(tiny(family, head=False, layout="mlx")))
    assert not np.array_equal(published, stock_logits(tiny(family, head=False, seed=1)))


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"single_file": True},
        {"shards": 3, "sidecar": "mtp/head.safetensors"},
        {"layout": "mlx", "hidden": 64, "quantize": {"bits": 4, "group_size": 32}},
        {"fp8": True, "hidden": 64},
    ],
    ids=lambda options: " ".join(options) or "plain",
)
def test_files_and_index_are_valid(
    tiny: TinyFactory, family: FamilyName, options: dict[str, Any]
) -> None:
    folder = tiny(family, **options)
    found: dict[str, str] = {}
    for path in folder.glob("model*.safetensors"):
        with safe_open(path, "numpy") as opened:
            assert opened.metadata() == {"format": "mlx" if "layout" in options else "pt"}
            for name in opened.keys():  # noqa: SIM118 - not a mapping
                assert name not in found
                found[name] = path.name
    index = folder / "model.safetensors.index.json"
    if "single_file" in options:
        assert not index.exists()
        assert set(found.values()) == {"model.safetensors"}
    else:
        assert json.loads(index.read_text())["weight_map"] == found
    assert (folder / "mtp/head.safetensors").exists() == (
        "sidecar" in options and family != "llama"
    )


@pytest.mark.parametrize("family", HEADED)
def test_head_names_follow_the_published_prefix(tiny: TinyFactory, family: FamilyName) -> None:
    folder = tiny(family, layers=3)
    without = tiny(family, layers=3, head=False)
    head = set(all_tensors(folder)) - set(all_tensors(without))
    expected = "mtp." if family in QWEN else "model.layers.3."
    expected = "model.mtp_layers.0." if family == "mimo" else expected
    assert head
    assert all(name.startswith(expected) for name in head)
    moved = tiny(family, layers=3, prefix="language_model.mtp.")
    assert any(name.startswith("language_model.mtp.") for name in all_tensors(moved))


def test_deepseek_and_glm_heads_carry_copies_of_the_vocabulary(tiny: TinyFactory) -> None:
    for family in ("deepseek_v3", "glm4_moe"):
        tensors = all_tensors(tiny(family))
        assert tensors["model.layers.2.embed_tokens.weight"] == tensors["model.embed_tokens.weight"]
        assert tensors["model.layers.2.shared_head.head.weight"] == tensors["lm_head.weight"]


@pytest.mark.parametrize("layers", [2, 61, 78])
def test_the_head_sits_right_behind_any_number_of_layers(tiny: TinyFactory, layers: int) -> None:
    for family in ("deepseek_v3", "glm4_moe"):
        tensors = all_tensors(tiny(family, layers=layers))
        assert f"model.layers.{layers}.eh_proj.weight" in tensors
        assert f"model.layers.{layers}.mlp.experts.3.up_proj.weight" in tensors
        assert f"model.layers.{layers + 1}.eh_proj.weight" not in tensors


def test_several_heads_are_several_layers(tiny: TinyFactory) -> None:
    folder = tiny("glm4_moe", heads=3)
    assert json.loads((folder / "config.json").read_text())["num_nextn_predict_layers"] == 3
    tensors = all_tensors(folder)
    assert all(f"model.layers.{n}.eh_proj.weight" in tensors for n in (2, 3, 4))


@pytest.mark.parametrize("family", QWEN)
def test_norm_conventions_store_the_same_gains(tiny: TinyFactory, family: FamilyName) -> None:
    raw, final, mixed = (
        read_values(tiny(family, norm_convention=c, sidecar="mtp.safetensors") / "mtp.safetensors")
        for c in ("raw", "final", "mixed")
    )
    norms = [name for name in raw if "norm" in name]
    assert len(norms) == 7
    for name in norms:
        assert np.array_equal(raw[name] + 1, final[name])
    kept = {name for name in norms if np.array_equal(mixed[name], raw[name])}
    assert kept == {"mtp.pre_fc_norm_embedding.weight", "mtp.layers.0.input_layernorm.weight"}
    assert raw["mtp.layers.0.self_attn.q_norm.weight"].mean() == pytest.approx(0.74, abs=0.1)
    assert raw["mtp.pre_fc_norm_embedding.weight"].mean() == pytest.approx(-0.44, abs=0.1)


@pytest.mark.parametrize("family", ["qwen3_5_moe", "qwen3_next"])
def test_expert_spellings_hold_the_same_values(tiny: TinyFactory, family: FamilyName) -> None:
    side = "mtp.safetensors"
    at = "mtp.layers.0.mlp."
    separate = read_values(tiny(family, sidecar=side) / side)
    fused = read_values(tiny(family, sidecar=side, fused_experts=True) / side)
    stacked = read_values(tiny(family, sidecar=side, stacked_experts=True) / side)
    for expert in range(4):
        gate = separate[f"{at}experts.{expert}.gate_proj.weight"]
        up = separate[f"{at}experts.{expert}.up_proj.weight"]
        down = separate[f"{at}experts.{expert}.down_proj.weight"]
        assert np.array_equal(
            fused[f"{at}experts.gate_up_proj"][expert], np.concatenate([gate, up])
        )
        assert np.array_equal(fused[f"{at}experts.down_proj"][expert], down)
        assert np.array_equal(stacked[f"{at}switch_mlp.up_proj.weight"][expert], up)
        assert np.array_equal(stacked[f"{at}switch_mlp.down_proj.weight"][expert], down)


def test_fp8_codes_agree_with_mlx() -> None:
    codes = np.array([*range(0x7F), *range(0x80, 0xFF)], np.uint8)
    assert np.array_equal(fp8.from_codes(codes), np.array(mx.from_fp8(mx.array(codes), mx.float32)))


def test_fp8_weights_dequantise_to_the_kept_truth(tiny: TinyFactory) -> None:
    folder = tiny("deepseek_v3", fp8=True, hidden=160)
    tensors, truth = all_tensors(folder), fp8_truth(folder)
    name = "model.layers.2.self_attn.q_b_proj.weight"
    assert tensors[name].dtype == "F8_E4M3"
    assert tensors[f"{name}_scale_inv"].shape == (2, 2)
    scales = decode(tensors[f"{name}_scale_inv"])
    assert np.array_equal(fp8.dequantize(decode(tensors[name]), scales), truth[name])
    exact = all_tensors(tiny("deepseek_v3", hidden=160))
    assert np.abs(truth[name] - decode(exact[name])).max() < 0.07 * np.abs(truth[name]).max()
    for plain in ("eh_proj", "mlp.gate", "shared_head.head", "enorm"):
        assert tensors[f"model.layers.2.{plain}.weight"].dtype == "BF16"


def test_stock_mlx_lm_reads_the_same_fp8_values(tiny: TinyFactory) -> None:
    folder = tiny("deepseek_v3", fp8=True, head=False, hidden=160)
    model, _ = load_model(folder, strict=True)
    truth = round_to(fp8_truth(folder)["model.layers.0.mlp.up_proj.weight"], "BF16")
    loaded = model.layers[0].mlp.up_proj.weight.astype(mx.float32)
    assert np.array_equal(np.array(loaded), truth)


def test_sliding_window_trunk_alternates_its_caches(tiny: TinyFactory) -> None:
    model, _ = load_model(tiny("llama", config_overrides=WINDOW))
    kinds = [type(cache).__name__ for cache in model.make_cache()]
    assert kinds == ["RotatingKVCache", "KVCache"]


def test_overrides_shape_the_weights_and_can_remove_keys(tiny: TinyFactory) -> None:
    folder = tiny("qwen3_5", config_overrides={"tie_word_embeddings": True, "hidden_act": ...})
    config = json.loads((folder / "config.json").read_text())
    assert config["tie_word_embeddings"] is config["text_config"]["tie_word_embeddings"] is True
    assert "hidden_act" not in config["text_config"]
    assert "lm_head.weight" not in all_tensors(folder)
    assert np.isfinite(stock_logits(folder)).all()


def test_options_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="layout='mlx'"):
        build_tiny(tmp_path, "mimo", quantize={"bits": 4})
    with pytest.raises(ValueError, match="layout='hf'"):
        build_tiny(tmp_path, "mimo", layout="mlx", fp8=True)
