"""The trunk: an mlx-lm model bound strictly to the tensors that are not the head's."""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import MODEL_REMAPPING, load_config

from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.contracts.families import num_trunk_layers
from mtplx.contracts.head_names import looks_like_mtp
from mtplx.runtime.loading.arrays import Weights, stack_experts, unfuse_experts
from mtplx.runtime.loading.norms import refuse_mixed_layouts
from mtplx.runtime.loading.packed import unpack
from mtplx.runtime.loading.quantization import quantize_as_stored

# Text-only exports and one alias of MLX packs, by the mlx-lm module that reads them.
_TEXT_TYPES = {
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "qwen3_5_mtp": "qwen3_5_moe",
}
_DEEPSEEK_HEAD_LAYER = 61


def build_trunk(
    folder: Path, weights: Weights, dtype: mx.Dtype | None, *, model_type: str
) -> tuple[nn.Module, list[str]]:
    """The trunk of `folder` with `weights` (the head's taken out), and warnings.

    `model_type` is the family's, for a config that has none.
    `dtype` widens floating tensors before anything is computed with them, so that norm shifts and unpacked
    products are not rounded; None keeps the stored types.

    Raises:
        UnsupportedModelError: mlx-lm has no such model, or refuses its configuration.
        CorruptModelError: tensors are missing, unexpected or of the wrong shape.
    """
    config = trunk_config(folder, model_type)
    model = build_model(folder, config)
    weights = unpack(weights, config, dtype or mx.bfloat16)
    if dtype is not None:
        weights = widen(weights, dtype)
    weights = arrange(model, weights, config)
    quantization = config.get("quantization") or _text(config).get("quantization")
    strangers = quantize_as_stored(model, weights, quantization)
    load_strictly(model, weights, folder)
    model.eval()
    return model, _map_warnings(strangers, num_trunk_layers(config))


def trunk_config(folder: Path, model_type: str) -> dict[str, Any]:
    """config.json of `folder` as mlx-lm reads it; it may name its model by architecture only."""
    return {"model_type": model_type, **load_config(folder)}


def stock_model_type(model_type: str) -> str:
    """The `model_type` under which mlx-lm itself knows the model."""
    return _TEXT_TYPES.get(model_type, model_type)


def arrange(model: nn.Module, weights: Weights, config: Mapping[str, Any]) -> Weights:
    """Published tensors under the names and in the shapes of the model's parameters.

    Raises:
        CorruptModelError: the tensors are a mixture of published and converted ones.
    """
    refuse_mixed_layouts(weights)
    return _sanitize(model, _published_experts(weights, str(config["model_type"])))


def load_strictly(model: nn.Module, weights: Weights, folder: Path) -> None:
    """Put `weights`, named as parameters, into the model.

    Raises:
        CorruptModelError: tensors are missing, unexpected or of the wrong shape.
    """
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise CorruptModelError(
            f"{folder}: the weights do not fit {getattr(model, 'model_type', 'the model')}: {error}",
            hint="config.json and the weight files come from different models; download both again",
        ) from error


def _map_warnings(strangers: list[str], num_layers: int) -> list[str]:
    """Entries of the quantization map that concern neither the trunk, its split `kv_b_proj` nor the head."""
    return [
        f"config.json: the quantization map names {path!r}, which is no module of this model"
        for path in strangers
        if not path.endswith("kv_b_proj") and not looks_like_mtp(path, num_layers)
    ]


def widen(weights: Weights, dtype: mx.Dtype) -> Weights:
    """Floating tensors as `dtype`; packed integers and FP8 bytes stay."""
    return {
        name: value.astype(dtype) if mx.issubdtype(value.dtype, mx.floating) else value
        for name, value in weights.items()
    }


def build_model(folder: Path, config: Mapping[str, Any]) -> nn.Module:
    """The mlx-lm model that `config`, of `folder`, describes; its parameters are lazy and random.

    Raises:
        UnsupportedModelError: mlx-lm has no such model, or refuses its configuration.
    """
    model_type = str(config["model_type"])
    module_name = stock_model_type(model_type)
    module_name = MODEL_REMAPPING.get(module_name, module_name)
    try:
        module = importlib.import_module(f"mlx_lm.models.{module_name}")
    except ImportError as error:
        raise UnsupportedModelError(
            f"{folder / 'config.json'}: model_type {model_type!r} has no mlx-lm model"
        ) from error
    try:
        # Arguments are a copy because some classes edit the nested dictionaries they are given.
        args = module.ModelArgs.from_dict(copy.deepcopy(dict(config)))
        model: nn.Module = module.Model(args)
    except (
        TypeError,
        ValueError,
        KeyError,
        AttributeError,
        ArithmeticError,
        AssertionError,
    ) as error:
        raise UnsupportedModelError(
            f"{folder / 'config.json'}: mlx-lm cannot build {model_type!r} from it: {error or type(error).__name__}",
            hint="compare config.json with the published one",
        ) from error
    return model


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    section = config.get("text_config")
    return section if isinstance(section, Mapping) else {}


def stock_experts(weights: Weights, model_type: str) -> Weights:
    """Experts in a spelling that mlx-lm's own sanitize reads; published spellings it knows stay."""
    if model_type.startswith("qwen3_5") and not any(_needs_stacking(name) for name in weights):
        return weights
    return _published_experts(weights, model_type)


def _needs_stacking(name: str) -> bool:
    """Whether an expert tensor of Qwen3.5 is neither fused as published nor stacked."""
    return ".experts." in name and not name.endswith((".gate_up_proj", ".experts.down_proj"))


def _published_experts(weights: Weights, model_type: str) -> Weights:
    """Expert spellings that mlx-lm's own sanitize of the family does not read."""
    if model_type.startswith("qwen3_5"):
        return stack_experts(unfuse_experts(weights))
    if model_type == "qwen3_next":
        # mlx-lm tells a raw export, whose norms need shifting, by its unstacked experts; the convolution is what
        # really tells.
        is_raw = any(n.endswith("conv1d.weight") and w.shape[-1] != 1 for n, w in weights.items())
        return _separate_experts(weights) if is_raw else stack_experts(unfuse_experts(weights))
    return weights


def _separate_experts(weights: Weights) -> Weights:
    """Fused experts of raw Qwen3-Next exports one by one: mlx-lm tells a raw export from a converted one by them."""
    if not any(name.endswith("experts.gate_up_proj") for name in weights):
        return weights
    out: Weights = {}
    for name, value in unfuse_experts(weights).items():
        if ".switch_mlp." in name and name not in weights:
            for expert in range(value.shape[0]):
                out[name.replace(".switch_mlp.", f".experts.{expert}.")] = value[expert]
        else:
            out[name] = value
    return out


def _sanitize(model: nn.Module, weights: Weights) -> Weights:
    """mlx-lm's own renaming for the family.

    Its DeepSeek class drops every layer whose name starts with 61, where the published head sits. In a deeper
    model that is a layer of the trunk, so it goes through alone, under another number.
    """
    if not hasattr(model, "sanitize"):
        return weights
    held = _dropped_layers(model, weights)
    if not held:
        return dict(model.sanitize(weights))
    out = dict(model.sanitize({n: w for n, w in weights.items() if _layer(n) not in held}))
    for number in held:
        prefix, stand_in = f"model.layers.{number}.", "model.layers.0."
        alone = {
            stand_in + n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)
        }
        for name, value in model.sanitize(alone).items():
            out[prefix + name.removeprefix(stand_in)] = value
    return out


def _dropped_layers(model: nn.Module, weights: Weights) -> list[int]:
    if getattr(model, "model_type", "") not in ("deepseek_v3", "kimi_k2", "joyai_llm_flash"):
        return []
    numbers = {_layer(name) for name in weights} - {None}
    return sorted(
        n for n in numbers if n is not None and str(n).startswith(str(_DEEPSEEK_HEAD_LAYER))
    )


def _layer(name: str) -> int | None:
    match = re.match(r"model\.layers\.(\d+)\.", name)
    return None if match is None else int(match[1])
