"""The same tiny model as mlx-lm itself would have saved it, quantised or not."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from tests.support.tensorfile import Tensor, decode
from tests.support.tiny_weights import is_full_linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.tiny_families import Config

_DTYPE_NAMES = {mx.bfloat16: "BF16", mx.float32: "F32", mx.uint32: "U32"}
_WRAPPED = ("language_model.model.", "model.language_model.")


@dataclass(frozen=True, slots=True)
class Quantize:
    """How a pack is quantised.

    ``overrides`` maps module paths of the trunk or of the head (as stored, prefix included) to
    their own ``{"bits": ..., "group_size": ...}`` or to False (left alone). ``head`` quantises the
    head's large matrices, which stay as they are otherwise. ``naming`` chooses the names of the
    trunk's tensors and of its override keys: ``module`` as mlx-lm saves them, ``checkpoint`` as
    published (these differ for Qwen3.5 only).
    """

    bits: int = 4
    group_size: int = 64
    overrides: Mapping[str, dict[str, int] | bool] | None = None
    head: Mapping[str, int] | None = None
    naming: str = "module"

    def setting(self, path: str) -> dict[str, int] | bool:
        """What to do with one module of the trunk."""
        return (self.overrides or {}).get(path, True)


def to_mlx(tensor: Tensor) -> mx.array:
    """A stored tensor as an mlx array of its own dtype."""
    values = mx.array(np.array(decode(tensor)))
    return values.astype(mx.bfloat16) if tensor.dtype == "BF16" else values


def from_mlx(array: mx.array) -> Tensor:
    """An mlx array as a stored tensor."""
    dtype = _DTYPE_NAMES[array.dtype]
    raw = array.view(mx.uint16) if dtype == "BF16" else array
    return Tensor(dtype, tuple(array.shape), np.array(raw).tobytes())


def load_stock_trunk(config: Config, trunk: Mapping[str, Tensor]) -> nn.Module:
    """The stock mlx-lm model with published trunk weights in it, loaded strictly."""
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(config))
    weights = {name: to_mlx(tensor) for name, tensor in trunk.items()}
    if hasattr(model, "sanitize"):
        weights = model.sanitize(weights)
    model.load_weights(list(weights.items()), strict=True)
    loaded: nn.Module = model
    return loaded


def _quantize_trunk(model: nn.Module, how: Quantize) -> dict[str, Any]:
    """Quantise in place; returns the pack's ``quantization`` block."""
    block: dict[str, Any] = {"group_size": how.group_size, "bits": how.bits, "mode": "affine"}

    def choose(path: str, module: nn.Module) -> dict[str, int] | bool:
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % how.group_size:
            return False
        setting = how.setting(path)
        if setting is True and hasattr(model, "quant_predicate") and model.quant_predicate:
            setting = model.quant_predicate(path, module)
        if setting is not True:
            block[path] = setting
        return setting

    nn.quantize(model, how.group_size, how.bits, class_predicate=choose)
    return block


def quantize_head(
    head: Mapping[str, Tensor], how: Quantize
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The head's large matrices quantised, with the entries they need in the config."""
    stored: dict[str, Tensor] = {}
    entries: dict[str, Any] = {}
    default = {"group_size": how.group_size, "bits": how.bits}
    for name, tensor in head.items():
        path = name.removesuffix(".weight")
        own = (how.overrides or {}).get(path)
        setting = own if isinstance(own, dict) else how.head
        if own is False or setting is None or not is_full_linear(name):
            stored[name] = tensor
            continue
        bits, group = setting["bits"], setting["group_size"]
        packed = mx.quantize(to_mlx(tensor), group_size=group, bits=bits)
        for part, array in zip(("weight", "scales", "biases"), packed, strict=True):
            stored[f"{path}.{part}"] = from_mlx(array)
        if setting != default:
            entries[path] = {"group_size": group, "bits": bits}
    return stored, entries


def save_as_mlx(
    config: Config, trunk: Mapping[str, Tensor], how: Quantize | None
) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Trunk tensors as mlx-lm saves them, and the ``quantization`` block if there is one."""
    model = load_stock_trunk(config, trunk)
    block = _quantize_trunk(model, how) if how else None
    parameters: Any = tree_flatten(model.parameters(), destination={})
    stored = {name: from_mlx(array) for name, array in parameters.items()}
    if how and block and how.naming == "checkpoint":
        stored = {_published(name): tensor for name, tensor in stored.items()}
        block = {_published(name): value for name, value in block.items()}
    return stored, block


def _published(name: str) -> str:
    inside, outside = _WRAPPED
    if name.startswith(inside):
        return outside + name.removeprefix(inside)
    return name.removeprefix("language_model.")
