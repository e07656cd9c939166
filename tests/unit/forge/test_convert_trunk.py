"""The body: bit by bit as published, or quantised by mlx-lm; the same bytes however it was reached."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.tensors import INDEX_NAME, read_tensor_index
from mtplx.forge.convert.body import plan_body
from mtplx.forge.convert.shards import plan_shards
from tests.support.forged import forge, inspected, recipe, write_trunk
from tests.support.tensorfile import Tensor, encode, read_tensors, write_tensors
from tests.support.tiny import fp8_truth
from tests.support.tiny_families import HEAD_PREFIX, FamilyName

if TYPE_CHECKING:
    from pathlib import Path

    from mtplx.contracts.identity import FileRecord
    from tests.conftest import TinyFactory

RUNNABLE: tuple[FamilyName, ...] = (
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
    "deepseek_v3",
    "glm4_moe",
    "mimo",
)
SMALL_SHARDS = 40_000 / 2**30


def stored(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the trunk's files."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        tensors |= read_tensors(path)
    return tensors


def content(folder: Path) -> dict[str, bytes]:
    """All bytes by file name."""
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def is_head(family: FamilyName, name: str) -> bool:
    """Whether a published tensor of a two-layer folder is the head's."""
    prefix = HEAD_PREFIX[family]
    return name.startswith(f"{prefix}2." if prefix == "model.layers." else prefix)


@pytest.mark.parametrize("family", RUNNABLE)
def test_a_lossless_body_is_every_published_tensor_but_the_head(
    shared_tiny: TinyFactory, family: FamilyName, tmp_path: Path
) -> None:
    source = shared_tiny(family)
    files = write_trunk(source, tmp_path, recipe())
    assert list(files) == ["model.safetensors"]
    published = stored(source)
    assert stored(tmp_path) == {n: t for n, t in published.items() if not is_head(family, n)}
    assert read_tensor_index(tmp_path).metadata == {"model.safetensors": {"format": "pt"}}


def test_vision_and_stray_mtp_tensors_are_left_out(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("mimo", single_file=True)
    tensors = read_tensors(source / "model.safetensors")
    extra = {
        name: encode(np.ones((2, 2), np.float32), "BF16")
        for name in ("vision_tower.patch.weight", "model.visual.block.weight", "mtp.odd.weight")
    }
    write_tensors(source / "model.safetensors", {**tensors, **extra})
    write_trunk(source, tmp_path, recipe())
    assert not extra.keys() & stored(tmp_path).keys()


@pytest.mark.parametrize("family", ["qwen3_5_moe", "deepseek_v3"])
def test_packed_tensors_are_rounded_once_from_what_they_stand_for(
    tiny: TinyFactory, family: FamilyName, tmp_path: Path
) -> None:
    source = tiny(family, fp8=True)
    files = write_trunk(source, tmp_path, recipe())
    assert files
    truth, found = fp8_truth(source), stored(tmp_path)
    compared = [name for name in found if name in truth and not name.endswith("_bias")]
    assert len(compared) > 10
    for name in compared:
        assert found[name] == encode(truth[name], "BF16"), name
    assert not any(name.endswith("_scale_inv") for name in found)


@pytest.mark.parametrize("family", RUNNABLE)
@pytest.mark.parametrize("options", [{}, {"fp8": True}, {"fused_experts": True}])
def test_a_lossless_body_loads_in_stock_mlx_lm(
    tiny: TinyFactory, family: FamilyName, options: dict[str, Any], tmp_path: Path
) -> None:
    made = forge(tiny(family, **options), tmp_path / "out", recipe())
    model, _ = load_model(made.folder, lazy=True)
    assert tree_flatten(model.parameters())


@pytest.mark.parametrize("family", RUNNABLE)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantised_body_loads_in_stock_mlx_lm_as_the_recipe_says(
    tiny: TinyFactory,
    family: FamilyName,
    bits: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    overrides = {"router": "keep", "lm_head": {"bits": 8, "group_size": 32}}
    how = recipe(bits, body_group_size=32, module_overrides=overrides)
    made = forge(tiny(family, hidden=64), tmp_path / "out", how)
    assert capsys.readouterr().out == ""
    model, _ = load_model(made.folder, lazy=True)
    widths = {path: getattr(m, "bits", None) for path, m in model.named_modules()}
    assert {width for path, width in widths.items() if path.endswith("lm_head")} == {8}
    assert {width for path, width in widths.items() if path.endswith("down_proj")} == {bits}
    assert {width for path, width in widths.items() if path.endswith("mlp.gate")} <= {None}
    assert read_tensor_index(made.folder).metadata["model.safetensors"] == {"format": "mlx"}


def test_parameters_that_the_model_keeps_in_float32_stay_so(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    write_trunk(tiny("deepseek_v3", hidden=64), tmp_path, recipe(4, body_dtype="float16"))
    found = stored(tmp_path)
    for name, tensor in found.items():
        if name.endswith("e_score_correction_bias"):
            assert tensor.dtype == "F32"
        elif tensor.dtype != "U32":
            assert tensor.dtype == "F16", name


def test_shifted_gains_are_rounded_once(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("qwen3_5", hidden=64, dtype="F32")
    write_trunk(source, tmp_path, recipe(8))
    name = "layers.1.self_attn.q_norm.weight"
    published = stored(source)[f"model.language_model.{name}"]
    gain = np.frombuffer(published.data, np.float32) + np.float32(1)
    assert stored(tmp_path)[f"language_model.model.{name}"] == encode(gain, "BF16")


def test_modules_that_do_not_divide_into_groups_are_reported_and_kept(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    said: list[str] = []
    write_trunk(
        tiny("mimo", hidden=64, config_overrides={}),
        tmp_path,
        recipe(4, body_group_size=128, module_overrides={}),
        on_progress=lambda label, _fraction: said.append(label),
    )
    kept = next(label for label in said if "not quantised" in label)
    assert "groups of 128" in kept
    assert "model.layers.0.self_attn.q_proj" in kept
    found = stored(tmp_path)
    assert found["model.layers.0.self_attn.q_proj.weight"].dtype == "BF16"
    assert found["model.layers.0.mlp.down_proj.weight"].dtype == "U32"


@pytest.mark.parametrize("bits", [None, 4])
def test_a_source_that_mlx_quantised_is_copied(
    tiny: TinyFactory, bits: int | None, tmp_path: Path
) -> None:
    pack = {"layout": "mlx", "hidden": 64, "sidecar": "mtp.safetensors"}
    source = tiny("qwen3_5", **pack, quantize={"bits": 4, "group_size": 32})
    made = forge(source, tmp_path / "out", recipe(bits))
    assert stored(made.folder) == stored(source)
    assert read_tensor_index(made.folder).metadata["model.safetensors"] == {"format": "mlx"}
    load_model(made.folder, lazy=True)


def test_shards_follow_the_layers_and_an_index_names_them(
    tiny: TinyFactory, tmp_path: Path
) -> None:
    source = tiny("glm4_moe", layers=4)
    files = write_trunk(source, tmp_path, recipe(shard_size_gib=SMALL_SHARDS))
    shards = [name for name in files if name != INDEX_NAME]
    assert len(shards) > 2
    assert shards == [
        f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)
    ]
    index = json.loads((tmp_path / INDEX_NAME).read_text())
    assert index["metadata"]["total_size"] == sum(len(t.data) for t in stored(tmp_path).values())
    assert index["weight_map"].keys() == stored(tmp_path).keys()
    assert index["weight_map"]["model.embed_tokens.weight"] == shards[0]
    assert index["weight_map"]["lm_head.weight"] == shards[-1]
    first = {n: f for n, f in index["weight_map"].items() if n.startswith("model.layers.0.")}
    last = {n: f for n, f in index["weight_map"].items() if n.startswith("model.layers.3.")}
    assert max(first.values()) <= min(last.values())


def test_layers_are_ordered_by_number_and_large_tensors_get_their_own_file() -> None:
    sizes = {"lm_head.weight": 5, "model.embed_tokens.weight": 50}
    sizes |= {f"model.layers.{n}.mlp.up_proj.weight": 5 for n in range(12)}
    shards = plan_shards(sizes, 20)
    assert shards[0].names == ("model.embed_tokens.weight",)
    layers = [name for shard in shards[1:] for name in shard.names]
    assert layers == [f"model.layers.{n}.mlp.up_proj.weight" for n in range(12)] + [
        "lm_head.weight"
    ]
    assert all(sum(sizes[n] for n in shard.names) <= 20 for shard in shards[1:])


class _StopError(Exception):
    """Ends a conversion between two shards."""


@pytest.mark.parametrize("bits", [None, 4])
def test_an_interrupted_conversion_ends_with_the_bytes_of_an_uninterrupted_one(
    tiny: TinyFactory, bits: int | None, tmp_path: Path
) -> None:
    source = tiny("deepseek_v3", hidden=64, layers=3)
    how = recipe(bits, shard_size_gib=SMALL_SHARDS)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    expected = write_trunk(source, whole, how)
    finished: dict[str, FileRecord] = {}

    def stop_after_two(name: str, record: FileRecord) -> None:
        finished[name] = record
        if len(finished) == 2:
            raise _StopError

    with pytest.raises(_StopError):
        write_trunk(source, broken, how, on_shard=stop_after_two)
    (broken / ".model-00003-of-00009.safetensors.partial").write_bytes(b"half")
    times = {name: (broken / name).stat().st_mtime_ns for name in finished}
    assert write_trunk(source, broken, how, finished=finished) == expected
    assert content(broken) == content(whole)
    assert times == {name: (broken / name).stat().st_mtime_ns for name in finished}


@pytest.mark.parametrize("damage", ["missing", "short", "header", "other recipe"])
def test_a_finished_file_that_is_no_longer_intact_is_written_again(
    tiny: TinyFactory, damage: str, tmp_path: Path
) -> None:
    source = tiny("mimo", hidden=64)
    how = recipe(shard_size_gib=SMALL_SHARDS)
    finished = write_trunk(source, tmp_path / "out", how)
    expected = content(tmp_path / "out")
    path = tmp_path / "out" / next(iter(finished))
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "header":
        path.write_bytes(b"\xff" * path.stat().st_size)
    else:
        how = recipe(8, body_group_size=32, shard_size_gib=SMALL_SHARDS)
        expected = {}
    again = write_trunk(source, tmp_path / "out", how, finished=finished)
    if expected:
        assert again == finished
        assert content(tmp_path / "out") == expected
    else:
        assert not again.keys() & finished.keys() or again != finished


def test_weights_of_another_model_are_refused(tiny: TinyFactory, tmp_path: Path) -> None:
    source = tiny("mimo", hidden=64, single_file=True)
    tensors = read_tensors(source / "model.safetensors")
    tensors["model.layers.0.mlp.odd.weight"] = encode(np.ones((2, 2), np.float32), "BF16")
    write_tensors(source / "model.safetensors", tensors)
    with pytest.raises(CorruptModelError, match="do not fit mimo"):
        write_trunk(source, tmp_path, recipe(4))


def test_nothing_is_computed_for_a_plan(tiny: TinyFactory) -> None:
    source = tiny("glm4_moe", hidden=64)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    assert plan_body(inspected(source), recipe(4)).block["bits"] == 4
    smallest_matrix = 64 * 64 * 2
    assert mx.get_peak_memory() - before < smallest_matrix
