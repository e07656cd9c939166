"""Quantised modules as the tensors say, and their float32 form for the CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten
from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from mlx_lm.utils import infer_quant_config

from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.runtime.loading.arrays import Weights

SUPPORTED_BITS = (2, 3, 4, 5, 6, 8)

_NAMING = re.compile(
    r"^(?:model\.language_model\.|language_model\.model\.|language_model\.|model\.)"
)
_EXPERT = re.compile(r"\.experts(?:\.\d+)?\.")


def canonical_module(path: str) -> str:
    """A module path without the wrapper prefixes that exporters disagree on, experts folded into one.

    `model.language_model.layers.0.mlp.experts.3.up_proj` and `language_model.model.layers.0.mlp.switch_mlp.up_proj`
    name the same module.
    """
    return _EXPERT.sub(".switch_mlp.", _NAMING.sub("", path))


def quantize_as_stored(
    module: nn.Module, weights: Weights, quantization: Mapping[str, Any] | None
) -> list[str]:
    """Turn the layers of `module` whose `scales` are in `weights` into quantised ones.

    Bits, group size and mode come from the tensors themselves; the per-module map of the configuration only has
    to agree. Returns the paths in the map that name no module here.

    Raises:
        CorruptModelError: the map says other bits or groups than the tensors hold.
        UnsupportedModelError: a bit width that mlx can't compute with.
    """
    overrides = {
        path: spec for path, spec in (quantization or {}).items() if isinstance(spec, Mapping)
    }
    by_module = {canonical_module(path): spec for path, spec in overrides.items()}
    seen: set[str] = set()

    def predicate(path: str, layer: nn.Module) -> bool | dict[str, Any]:
        if not hasattr(layer, "to_quantized"):
            return False
        seen.add(canonical_module(path))
        if f"{path}.scales" not in weights:
            return False
        stored: dict[str, Any] = infer_quant_config(path, layer, weights)
        if stored["bits"] not in SUPPORTED_BITS:
            raise UnsupportedModelError(
                f"{path} is stored with {stored['bits']} bits; mlx computes with {SUPPORTED_BITS}"
            )
        _check_override(path, stored, by_module.get(canonical_module(path)))
        return stored

    nn.quantize(module, class_predicate=predicate)
    return sorted(path for path in overrides if canonical_module(path) not in seen)


def _check_override(path: str, stored: Mapping[str, Any], spec: Mapping[str, Any] | None) -> None:
    for key in ("bits", "group_size"):
        if spec is not None and key in spec and spec[key] != stored[key]:
            raise CorruptModelError(
                f"{path}: config.json says {key} {spec[key]}, the tensors hold {key} {stored[key]}",
                hint="the weights and config.json come from different conversions",
            )


def is_quantized(module: nn.Module) -> bool:
    """Whether any layer of the module is quantised."""
    return any(hasattr(layer, "bits") and "scales" in layer for _, layer in module.named_modules())


def dequantize_modules(module: nn.Module) -> None:
    """Replace every quantised layer by its float32 form, on this instance.

    Scales and biases are widened first, so nothing is rounded to 16 bits on the way.
    """
    replaced: list[tuple[str, nn.Module]] = []
    for name, layer in module.named_modules():
        if not (hasattr(layer, "bits") and "scales" in layer):
            continue
        weight = _float32_weight(layer)
        replaced.append((name, _plain_layer(layer, weight)))
    if replaced:
        module.update_modules(tree_unflatten(replaced))


def _float32_weight(layer: nn.Module) -> mx.array:
    scales = layer["scales"]
    if scales.dtype != mx.uint8:
        scales = scales.astype(mx.float32)
    biases = layer.get("biases")
    weight = mx.dequantize(
        layer["weight"],
        scales,
        None if biases is None else biases.astype(mx.float32),
        group_size=layer.group_size,
        bits=layer.bits,
        mode=layer.mode,
    )
    return weight.astype(mx.float32)


def _plain_layer(layer: nn.Module, weight: mx.array) -> nn.Module:
    plain: nn.Module
    if isinstance(layer, nn.QuantizedEmbedding):
        plain = nn.Embedding(1, 1)
    elif isinstance(layer, QuantizedSwitchLinear):
        plain = SwitchLinear(1, 1, 1, bias="bias" in layer)
    elif isinstance(layer, QuantizedMultiLinear):
        plain = MultiLinear(1, 1, 1)
    elif isinstance(layer, nn.QuantizedLinear):
        plain = nn.Linear(1, 1, bias="bias" in layer)
    else:
        raise UnsupportedModelError(
            f"no float32 form is known for the quantised layer {type(layer).__name__}"
        )
    plain.weight = weight
    if "bias" in layer:
        plain.bias = layer["bias"].astype(mx.float32)
    return plain
