"""The body quantised by mlx-lm, lazily: nothing is computed before a tensor is written."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import quantize_model

from mtplx.contracts.errors import InternalError
from mtplx.contracts.inspection import Inspection
from mtplx.forge.convert.published import read, trunk_names, unpacked
from mtplx.forge.recipe import Quantization, Recipe
from mtplx.runtime.loading.arrays import Weights, named_parameters
from mtplx.runtime.loading.norms import norm_names
from mtplx.runtime.loading.trunk_weights import (
    arrange,
    build_model,
    load_strictly,
    trunk_config,
)


@dataclass(frozen=True, slots=True)
class BodyPlan:
    """What a recipe makes of a body.

    `block` is the `quantization` entry of config.json, `kept` the modules that the recipe wants
    quantised and whose rows do not divide into whole groups, `summary` what mlx-lm said.
    """

    block: dict[str, Any]
    kept: tuple[str, ...]
    summary: str


def plan_body(inspection: Inspection, recipe: Recipe) -> BodyPlan:
    """What `quantized_body` would write into config.json; reads no weights."""
    return _quantize(build_model(inspection.path, _config(inspection)), recipe)


def quantized_body(inspection: Inspection, recipe: Recipe) -> tuple[Weights, BodyPlan]:
    """The quantised parameters under mlx-lm's names, each lazy, and what the recipe made of them.

    Floating parameters get the recipe's type before they are packed, except those that the model
    keeps in float32. Gains that mlx-lm shifts are shifted in float32.
    """
    config = _config(inspection)
    dtype = body_dtype(recipe)
    model = build_model(inspection.path, config)
    weights = unpacked(inspection, read(inspection, trunk_names(inspection)), dtype)
    for name in norm_names(weights):
        weights[name] = weights[name].astype(mx.float32)
    load_strictly(model, arrange(model, weights, config), inspection.path)
    _cast(model, dtype)
    plan = _quantize(model, recipe)
    return named_parameters(model), plan


def body_dtype(recipe: Recipe) -> mx.Dtype:
    """The type of what is not packed."""
    dtype: mx.Dtype = getattr(mx, recipe.body_dtype)
    return dtype


def _config(inspection: Inspection) -> dict[str, Any]:
    family = inspection.family
    return trunk_config(inspection.path, family.model_types[0] if family is not None else "")


def _cast(model: nn.Module, dtype: mx.Dtype) -> None:
    may_cast = getattr(model, "cast_predicate", lambda _name: True)
    model.load_weights(
        [
            (name, value.astype(dtype))
            for name, value in named_parameters(model).items()
            if mx.issubdtype(value.dtype, mx.floating) and may_cast(name)
        ],
        strict=False,
    )


def _quantize(model: nn.Module, recipe: Recipe) -> BodyPlan:
    body = recipe.body
    if body is None:
        raise InternalError(f"recipe {recipe.name} does not quantise and was asked to")
    widths = {
        path: int(module.weight.shape[-1])
        for path, module in model.named_modules()
        if hasattr(module, "to_quantized")
    }
    chosen = {path: recipe.applied_to(path, width) for path, width in widths.items()}

    def predicate(path: str, _module: nn.Module) -> bool | dict[str, Any]:
        return _setting(chosen[path], body)

    said = io.StringIO()
    with redirect_stdout(said):
        _, config = quantize_model(
            model, {}, body.group_size, body.bits, mode=body.mode, quant_predicate=predicate
        )
    kept = (p for p, q in chosen.items() if q is None and recipe.quantization_for(p) is not None)
    return BodyPlan(config["quantization"], tuple(sorted(kept)), said.getvalue().strip())


def _setting(chosen: Quantization | None, body: Quantization) -> bool | dict[str, Any]:
    """An answer as mlx-lm's predicates give it: no, like the rest, or other bits."""
    if chosen is None:
        return False
    return True if chosen == body else chosen.to_mlx()
