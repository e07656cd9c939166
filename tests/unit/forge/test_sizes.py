"""Estimated sizes against what mlx-lm makes of the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_config, load_model, quantize_model

from mtplx.contracts.inspection import inspect_folder
from mtplx.forge.parameters import read_parts
from mtplx.forge.recipe import PRESETS, load_recipe
from mtplx.forge.sizes import estimate, unfitting
from tests.support.checkpoints import require_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from mtplx.forge.recipe import Recipe
    from tests.conftest import TinyFactory
    from tests.support.checkpoints import TrainedName

NAMES: list[TrainedName] = ["qwen3_5", "qwen3_next", "deepseek_v3", "glm4_moe", "mimo"]


def trunk_bytes(folder: Path, recipe: Recipe) -> int:
    """Bytes of the trunk's parameters once mlx-lm has quantised them."""
    model, _ = load_model(folder, lazy=True, strict=False)
    model.set_dtype(mx.bfloat16)
    if (body := recipe.body) is not None:

        def predicate(path: str, module: nn.Module) -> bool | dict[str, Any]:
            how = recipe.applied_to(path, module.weight.shape[-1])
            return how.to_mlx() if how else False

        model, _ = quantize_model(
            model, load_config(folder), body.group_size, body.bits, body.mode, False, predicate
        )
    return total_bytes(model)


def total_bytes(model: nn.Module) -> int:
    flat: Any = tree_flatten(model.parameters())
    return sum(value.nbytes for _, value in flat)


def estimated(folder: Path, recipe: Recipe) -> int:
    inspection = inspect_folder(folder)
    return estimate(inspection, read_parts(inspection), recipe, download_bytes=0).trunk_bytes


@pytest.mark.parametrize("name", NAMES)
def test_the_trunk_has_the_size_that_mlx_lm_gives_it(name: TrainedName) -> None:
    folder = require_checkpoint(name)
    for recipe in (load_recipe("optimized-speed"), load_recipe("lossless")):
        assert estimated(folder, recipe) == pytest.approx(trunk_bytes(folder, recipe), rel=0.001)


@pytest.mark.parametrize(
    "text",
    [
        '{"body_bits": 3, "body_group_size": 32}',
        '{"body_bits": 4, "body_mode": "mxfp4"}',
        '{"body_bits": 8, "module_overrides": {"*.mlp.*": {"bits": 4, "mode": "nvfp4"}}}',
    ],
)
def test_every_mode_is_counted_as_mlx_packs_it(text: str) -> None:
    folder, recipe = require_checkpoint("qwen3_next"), load_recipe(text)
    assert estimated(folder, recipe) == pytest.approx(trunk_bytes(folder, recipe), rel=0.001)


def test_bare_speed_is_what_mlx_lm_converts_to_by_itself() -> None:
    folder, recipe = require_checkpoint("qwen3_next"), load_recipe("bare-speed")
    model, _ = load_model(folder, lazy=True, strict=False)
    model.set_dtype(mx.bfloat16)
    model, _ = quantize_model(model, load_config(folder), 64, 4)
    plain = total_bytes(model)
    assert estimated(folder, recipe) == pytest.approx(plain, rel=0.001)


def test_an_mlx_trunk_keeps_its_size_whatever_the_recipe(tiny: TinyFactory) -> None:
    how = {"bits": 4, "group_size": 32}
    inspection = inspect_folder(tiny("qwen3_5", layout="mlx", hidden=64, quantize=how))
    assert inspection.index is not None
    parts = read_parts(inspection)
    head = set(inspection.head.tensor_names)
    stored = sum(t.nbytes for n, t in inspection.index.tensors.items() if n not in head)
    for name in PRESETS:
        sizes = estimate(inspection, parts, load_recipe(name), download_bytes=0)
        assert sizes.trunk_bytes == stored
        assert unfitting(parts, load_recipe(name)) == []


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_next", "mimo"])
@pytest.mark.parametrize(
    "packing", [{"fp8": True}, {"pack": "awq"}, {"pack": "gptq"}, {"pack": "compressed"}], ids=str
)
def test_a_packed_source_is_counted_unpacked(
    tiny: TinyFactory, family: Any, packing: dict[str, Any]
) -> None:
    sizes = []
    for options in ({}, packing):
        inspection = inspect_folder(tiny(family, hidden=128, vocab=128, **options))
        assert inspection.error is None
        parts = read_parts(inspection)
        assert any(p.is_packed for p in parts.trunk) is bool(options)
        for name in ("lossless", "optimized-quality"):
            found = estimate(inspection, parts, load_recipe(name), download_bytes=0)
            sizes.append((found.trunk_bytes, found.head_bytes))
    assert sizes[:2] == sizes[2:]


def test_the_head_is_smaller_by_its_policy_and_without_copies(tiny: TinyFactory) -> None:
    inspection = inspect_folder(tiny("glm4_moe", hidden=128, vocab=128))
    parts = read_parts(inspection)

    def head(policy: str) -> int:
        recipe = load_recipe(f'{{"body_bits": 4, "mtp_policy": "{policy}"}}')
        return estimate(inspection, parts, recipe, download_bytes=0).head_bytes

    copies = 2 * 128 * 128 * 2
    norms = sum(p.count * 2 for p in parts.head if p.is_norm)
    assert head("keep_bf16") == pytest.approx(inspection.head.nbytes - copies + norms, abs=32)
    assert head("requantize") < head("q8") < head("keep_bf16")


def test_disk_and_memory_cover_their_parts(tiny: TinyFactory) -> None:
    inspection = inspect_folder(tiny("qwen3_5"))
    parts = read_parts(inspection)
    sizes = estimate(inspection, parts, load_recipe("lossless"), download_bytes=1000)
    assert sizes.disk_bytes >= 1000 + sizes.artifact_bytes
    assert sizes.artifact_bytes > sizes.trunk_bytes + sizes.head_bytes
    assert sizes.peak_memory_bytes == max(sizes.convert_peak_bytes, sizes.run_peak_bytes)
    largest = max(p.nbytes for p in parts.trunk)
    assert 2 * largest <= sizes.convert_peak_bytes <= 4 * largest
    assert sizes.run_peak_bytes > sizes.trunk_bytes + sizes.head_bytes


def test_modules_whose_rows_do_not_divide_are_named() -> None:
    inspection = inspect_folder(require_checkpoint("deepseek_v3"))
    odd = unfitting(read_parts(inspection), load_recipe("bare-speed"))
    assert odd == [f"model.layers.{k}.self_attn.q_b_proj" for k in range(4)]
