"""The body of an artifact: published tensors as they are, or quantised by a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from mtplx.contracts.identity import FileRecord
from mtplx.contracts.inspection import Inspection
from mtplx.contracts.inspection_checks import counted
from mtplx.forge.convert.body import body_dtype, quantized_body
from mtplx.forge.convert.published import is_mlx_quantized, made_by, read, trunk_names, unpacked
from mtplx.forge.convert.shards import remove_partial, write_shards
from mtplx.forge.recipe import Recipe
from mtplx.runtime.loading.arrays import Weights
from mtplx.runtime.loading.trunk_weights import stock_experts

_GIB = 2**30


def convert_trunk(
    folder: Path,
    inspection: Inspection,
    recipe: Recipe,
    out: Path,
    *,
    finished: Mapping[str, FileRecord],
    on_shard: Callable[[str, FileRecord], None],
    on_progress: Callable[[str, float], None],
) -> dict[str, FileRecord]:
    """Write the body of the model in `folder` into `out`; the records of its files by name.

    Without quantisation tensors keep names, values and layout, packed ones apart, and so do those
    of a source that MLX quantised. Head, vision tower and stray MTP tensors are left out.
    `finished` are files of an earlier attempt, which are not written again where they are intact;
    `on_shard` hears of every file, `on_progress` of what goes on and of the fraction done.

    Raises:
        CorruptModelError: the tensors do not make the model of config.json.
        UnsupportedModelError: mlx-lm has no such model.
        ResourceError: the disk is full.
    """
    inspection = replace(inspection, path=folder)
    remove_partial(out)
    tensors, format_name = _body(inspection, recipe, on_progress)
    return write_shards(
        out,
        tensors,
        limit=int(recipe.shard_size_gib * _GIB),
        made_by=format_name,
        finished=finished,
        on_shard=on_shard,
        on_progress=on_progress,
    )


def is_quantized_by(recipe: Recipe, inspection: Inspection) -> bool:
    """Whether the recipe quantises the body; one that MLX quantised already stays as it is."""
    return recipe.body is not None and not is_mlx_quantized(inspection)


def _body(
    inspection: Inspection, recipe: Recipe, on_progress: Callable[[str, float], None]
) -> tuple[Weights, str]:
    if not is_quantized_by(recipe, inspection):
        return _published(inspection, recipe), made_by(inspection)
    tensors, plan = quantized_body(inspection, recipe)
    on_progress(plan.summary, 0.0)
    if plan.kept:
        what = f"modules are not quantised, their rows do not divide into groups of {recipe.body_group_size}"
        on_progress(counted(plan.kept, what), 0.0)
    return tensors, "mlx"


def _published(inspection: Inspection, recipe: Recipe) -> Weights:
    """Tensors as published, apart from packed ones and experts that mlx-lm could not read."""
    stored = read(inspection, trunk_names(inspection))
    weights = unpacked(inspection, stored, body_dtype(recipe))
    family = inspection.family
    model_type = inspection.config.get("model_type") or (family.model_types[0] if family else "")
    return stock_experts(weights, str(model_type))
