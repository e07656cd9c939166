"""The trunk holds exactly what the folder stores, whatever lies beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import load_model

from mtplx.runtime.loading.folder import load
from tests.support import disk as damage
from tests.support.tensorfile import Tensor, read_tensors, write_tensors
from tests.support.tiny_families import FAMILY_NAMES, QWEN, FamilyName
from tests.unit.loading.reading import TOKENS, disk, parameters, trunk_logits

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.conftest import TinyFactory


def stock_logits(folder: Path) -> NDArray[np.float32]:
    """What mlx-lm alone computes from the folder, in float32."""
    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([TOKENS]))[0])


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("layout", ["hf", "mlx"])
def test_trunk_computes_what_mlx_lm_computes_without_the_head(
    shared_tiny: TinyFactory, family: FamilyName, layout: str
) -> None:
    model = load(shared_tiny(family, layout=layout))
    expected = stock_logits(shared_tiny(family, layout=layout, head=False))
    np.testing.assert_allclose(trunk_logits(model), expected, atol=2e-4)


@pytest.mark.parametrize("family", QWEN)
def test_converted_norms_stay_as_stored_beside_an_embedded_head(
    shared_tiny: TinyFactory, family: FamilyName
) -> None:
    folder = shared_tiny(family, layout="mlx", norm_convention="final")
    stored = disk(folder)
    assert any("mtp." in name for name in stored)
    for _ in range(2):
        loaded = parameters(load(folder).trunk.model)
        norms = [name for name in loaded if name.endswith("norm.weight")]
        assert len(norms) > 5
        for name in norms:
            np.testing.assert_array_equal(loaded[name], stored[name], err_msg=name)


@pytest.mark.parametrize("family", QWEN)
@pytest.mark.parametrize("head", [True, False])
def test_published_norms_gain_one_except_the_gated_ones(
    shared_tiny: TinyFactory, family: FamilyName, head: bool
) -> None:
    folder = shared_tiny(family, head=head)
    stored = disk(folder)
    wrapped = family != "qwen3_next"
    outside, inside = ("model.language_model.", "language_model.model.") if wrapped else ("", "")
    loaded = parameters(load(folder).trunk.model)
    for name in [n for n in stored if n.endswith("norm.weight") and "mtp." not in n]:
        found = loaded[name.replace(outside, inside, 1)]
        shift = 0.0 if ".linear_attn.norm." in name else 1.0
        np.testing.assert_array_equal(found, stored[name] + shift, err_msg=name)


def test_the_folder_name_has_no_influence(tiny: TinyFactory, tmp_path: Path) -> None:
    misleading = tmp_path / "nemotron-glm-qwen-mix"
    tiny("mimo").rename(misleading)
    assert load(misleading).family_name == load(tiny("mimo")).family_name


def test_tensors_of_an_ignored_file_are_not_read(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    expected = trunk_logits(load(folder))
    damage.add_stray_shard(folder)
    model = load(folder)
    np.testing.assert_array_equal(trunk_logits(model), expected)
    assert any("model.safetensors" in warning for warning in model.warnings)


def test_a_single_file_without_an_index_loads(tiny: TinyFactory) -> None:
    single, sharded = load(tiny("qwen3_next", single_file=True)), load(tiny("qwen3_next"))
    np.testing.assert_array_equal(trunk_logits(single), trunk_logits(sharded))
    assert single.has_head


@pytest.mark.parametrize("prefix", ["vision_tower.", "model.visual."])
def test_a_vision_tower_is_left_out_and_said_so(tiny: TinyFactory, prefix: str) -> None:
    folder = tiny("qwen3_5")
    expected = trunk_logits(load(folder))
    tower = {f"{prefix}blocks.{i}.weight": Tensor("F32", (2, 2), bytes(16)) for i in range(3)}
    write_tensors(folder / "model-visual.safetensors", tower)
    damage.edit_weight_map(
        folder, lambda names: {**names, **dict.fromkeys(tower, "model-visual.safetensors")}
    )
    damage.edit_json(folder / "config.json", {"vision_config": {"depth": 1}})
    model = load(folder)
    np.testing.assert_array_equal(trunk_logits(model), expected)
    assert model.inspection.vision is not None
    assert any("text only" in warning for warning in model.warnings)


def test_loading_reports_progress_up_to_one(shared_tiny: TinyFactory) -> None:
    seen: list[tuple[str, float]] = []
    load(shared_tiny("mimo"), on_progress=lambda label, done: seen.append((label, done)))
    fractions = [done for _, done in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert any("model-00001-of-00002" in label for label, _ in seen)


def test_weights_are_never_written_back(tiny: TinyFactory) -> None:
    folder = tiny("qwen3_5_moe")
    before = [read_tensors(path) for path in damage.shard_files(folder)]
    load(folder).generate([1, 2, 3], max_tokens=4, depth=1)
    assert [read_tensors(path) for path in damage.shard_files(folder)] == before
