"""From plain values to stored tensors: norm convention, expert spelling, prefixes, FP8."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import numpy as np

from tests.support import fp8
from tests.support.tensorfile import Tensor, encode
from tests.support.tiny_weights import is_full_linear, kind_of, stored_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.support.tiny_families import Config

    Values = dict[str, NDArray[np.float32]]

NormConvention = Literal["raw", "final", "mixed"]
Experts = Literal["separate", "fused", "stacked"]

LEFT_RAW_WHEN_MIXED = ("pre_fc_norm_embedding.weight", "layers.0.input_layernorm.weight")
_EXPERT = re.compile(r"(.*\.)experts\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")


def store_norms(values: Values, convention: NormConvention) -> Values:
    """Zero-centred norms as a checkpoint stores them: gain - 1 (raw) or the gain (final)."""

    def is_raw(name: str) -> bool:
        if kind_of(name) != "norm" or convention == "final":
            return False
        return convention == "raw" or name.endswith(LEFT_RAW_WHEN_MIXED)

    return {name: value - 1 if is_raw(name) else value for name, value in values.items()}


def spell_experts(values: Values, spelling: Experts) -> Values:
    """Experts one by one, fused (gate half first, no `.weight`), or stacked as mlx-lm does."""
    if spelling == "separate":
        return values
    groups: dict[tuple[str, str], list[NDArray[np.float32]]] = {}
    spelled: Values = {}
    for name, value in values.items():
        match = _EXPERT.fullmatch(name)
        if match is None:
            spelled[name] = value
        else:
            groups.setdefault((match[1], match[3]), []).append(value)
    for (at, projection), experts in groups.items():
        if spelling == "stacked":
            spelled[f"{at}switch_mlp.{projection}.weight"] = np.stack(experts)
        elif projection == "down_proj":
            spelled[f"{at}experts.down_proj"] = np.stack(experts)
        elif projection == "gate_proj":
            both = [np.stack(experts), np.stack(groups[at, "up_proj"])]
            spelled[f"{at}experts.gate_up_proj"] = np.concatenate(both, axis=1)
    return spelled


def number_from_zero(values: Values, first: int) -> Values:
    """A head whose layers follow the trunk's numbers, numbered on its own."""
    split = (name.split(".", 1) for name in values)
    names = [f"{int(number) - first}.{rest}" for number, rest in split]
    return dict(zip(names, values.values(), strict=True))


def add_prefix(values: Values, prefix: str) -> Values:
    """The head under its checkpoint prefix."""
    return {prefix + name: value for name, value in values.items()}


def encode_all(values: Values, dtype: str) -> dict[str, Tensor]:
    """Every tensor in the checkpoint's dtype."""
    return {name: encode(v, stored_dtype(name, dtype)) for name, v in values.items()}


def compress_fp8(values: Values, dtype: str) -> tuple[dict[str, Tensor], Values]:
    """FP8 blocks for the large matrices, ``dtype`` for the rest; also the values they stand for."""
    stored: dict[str, Tensor] = {}
    truth: Values = {}
    for name, value in values.items():
        if not is_full_linear(name) or value.ndim != 2:
            stored[name], truth[name] = encode(value, stored_dtype(name, dtype)), value
            continue
        codes, scales = fp8.quantize(value)
        stored[name] = encode(codes, "F8_E4M3")
        stored[f"{name}_scale_inv"] = encode(scales, "F32")
        truth[name] = fp8.dequantize(codes, scales)
    return stored, truth


def copy_vocabulary(trunk: Values, head: Values) -> None:
    """Heads of DeepSeek and GLM carry copies of the trunk's embedding and output matrix."""
    for name in head:
        if name.endswith(".embed_tokens.weight"):
            head[name] = trunk["model.embed_tokens.weight"]
        elif name.endswith(".shared_head.head.weight"):
            head[name] = trunk.get("lm_head.weight", trunk["model.embed_tokens.weight"])


def declare_fp8(config: Config) -> None:
    """The configuration block of an FP8 checkpoint."""
    config["quantization_config"] = fp8.QUANTIZATION_CONFIG
