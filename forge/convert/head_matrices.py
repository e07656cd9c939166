"""The head's matrices: their shapes as mlx-lm computes with them, their type, and their packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from mtplx.contracts.families import text_config
from mtplx.contracts.family import Family
from mtplx.contracts.head_names import HeadTensors
from mtplx.contracts.inspection import Inspection
from mtplx.forge.convert.head_names import infer_packing, parameter
from mtplx.forge.recipe import Quantization
from mtplx.runtime.loading.arrays import Weights, split_kv_b, stack_experts, unfuse_experts
from mtplx.runtime.loading.quantization import canonical_module

# Rounding a router changes which experts answer; the fusing projection is outside the block.
_PACKED = ("block.self_attn.", "block.mlp.")
_ROUTERS = ("block.mlp.gate.weight", "block.mlp.shared_expert_gate.weight")
_SETTINGS = ("bits", "group_size", "mode")
# Modules whose rows are as wide as the residual stream, in any layout.
_HIDDEN_INPUTS = ("q_proj", "q_a_proj", "up_proj")


def reshaped(config: Mapping[str, Any], weights: Weights) -> Weights:
    """Experts stacked as `mlp.switch_mlp` and `kv_b_proj` split; a packed `kv_b_proj` stays whole,
    since the pair could not keep its groups.
    """
    weights = stack_experts(unfuse_experts(weights))
    latent = [name for name in weights if ".kv_b_proj." in name]
    if not latent or any(name.endswith(".scales") for name in latent):
        return weights
    text = text_config(config)
    return split_kv_b(
        weights,
        num_heads=text["num_attention_heads"],
        nope_dim=text["qk_nope_head_dim"],
        kv_rank=text["kv_lora_rank"],
    )


def cast_matrices(weights: Weights) -> Weights:
    """Plain matrices as bfloat16. Vectors stay as stored: they are small, and some need float32."""
    return {
        name: value.astype(mx.bfloat16) if _is_plain_matrix(name, value, weights) else value
        for name, value in weights.items()
    }


def pack_matrices(
    family: Family, head: HeadTensors, weights: Weights, how: Quantization
) -> tuple[Weights, dict[str, Any]]:
    """The matrices of attention and MLP packed, where their rows divide into whole groups; routers,
    norms, biases and the fusing projection stay. Also bits, group size and mode.
    """
    out: Weights = {}
    for name, value in weights.items():
        target = parameter(family, head.names[name]) or ""
        if (
            target.startswith(_PACKED)
            and target not in _ROUTERS
            and _is_plain_matrix(name, value, weights)
            and how.fits(value.shape[-1])
        ):
            packed = mx.quantize(value, **how.to_mlx())
            stem = name.removesuffix("weight")
            out.update(
                zip((f"{stem}weight", f"{stem}scales", f"{stem}biases"), packed, strict=False)
            )
        else:
            out[name] = value
    return out, how.to_mlx()


def stored_packing(
    inspection: Inspection, head: HeadTensors, weights: Weights
) -> dict[str, Any] | None:
    """How MLX packed a head: bits, group size and mode, and by head-relative module path what the
    configuration gives others. None for a head that is not packed.
    """
    stems = [name.removesuffix(".scales") for name in weights if name.endswith(".scales")]
    if not stems:
        return None
    block = inspection.quantization or {}
    own = {canonical_module(path): s for path, s in block.items() if isinstance(s, Mapping)}
    default = {key: block[key] for key in _SETTINGS if key in block}
    width = int(text_config(inspection.config)["hidden_size"])
    for stem in stems:
        if stem.endswith(_HIDDEN_INPUTS) and canonical_module(stem) not in own:
            default = infer_packing(stem, weights, width)
            break
    others = {stem: own[path] for stem in stems if (path := canonical_module(stem)) in own}
    relative = {
        head.names[f"{stem}.scales"].removesuffix(".scales"): s for stem, s in others.items()
    }
    return {**default, **{stem: dict(s) for stem, s in sorted(relative.items())}}


def _is_plain_matrix(name: str, value: mx.array, weights: Weights) -> bool:
    stem = name.rpartition(".")[0]
    is_floating = bool(mx.issubdtype(value.dtype, mx.floating))
    return value.ndim >= 2 and is_floating and f"{stem}.scales" not in weights
