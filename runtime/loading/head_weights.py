"""The head: every tensor bound by name and shape, dropped for a stated reason, or an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mtplx.contracts.errors import HeadWeightsError
from mtplx.runtime.heads.head import MTPModule
from mtplx.runtime.heads.layout import HeadLayout
from mtplx.runtime.loading.arrays import (
    Weights,
    named_parameters,
    split_kv_b,
    stack_experts,
    unfuse_experts,
)
from mtplx.runtime.loading.norms import shift_norms, stored_as_delta
from mtplx.runtime.loading.quantization import quantize_as_stored
from mtplx.runtime.trunks.trunk import Trunk

_COMPARED_ROWS = 64


@dataclass(slots=True)
class HeadBinding:
    """What became of the head's tensors: `bound` parameters, `dropped` names with the reason, and notes."""

    bound: int = 0
    dropped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    norm_encoding: str = "absolute"


def bind_head(
    layout: HeadLayout,
    tensors: Weights,
    trunk: Trunk,
    *,
    raw_norms: bool | None,
) -> tuple[MTPModule, HeadBinding]:
    """The head module with `tensors` (named relative to the head) loaded strictly.

    `raw_norms`: gains are stored minus one (True), as gains (False), or that must be told from their values (None).

    Raises:
        HeadWeightsError: a tensor is unknown, missing or mis-shaped, or the norm convention is doubtful.
    """
    binding = HeadBinding()
    weights = _rename(layout, _first_layer(layout, tensors, binding))
    weights = _reshape(weights, trunk)
    _drop_copies(weights, trunk, binding)
    weights = _gains(weights, trunk, raw_norms, binding)
    module = _build_module(layout, weights, trunk)
    quantize_as_stored(module, weights, None)
    _load_strictly(module, weights)
    binding.bound = len(weights)
    module.eval()
    return module, binding


def _first_layer(layout: HeadLayout, tensors: Weights, binding: HeadBinding) -> Weights:
    """Tensors of the first MTP layer, without its number; the other layers are dropped and noted."""
    if layout.block_prefix:
        return _only_block(tensors, binding)
    kept: Weights = {}
    others: set[str] = set()
    for name, value in tensors.items():
        number, _, rest = name.partition(".")
        if number == "0":
            kept[rest] = value
        else:
            others.add(number)
            binding.dropped[name] = "only the first MTP layer is used, at every depth"
    _note_layers(others, binding)
    return kept


def _only_block(tensors: Weights, binding: HeadBinding) -> Weights:
    kept: Weights = {}
    others: set[str] = set()
    for name, value in tensors.items():
        parts = name.split(".")
        if parts[0] == "layers" and parts[1] != "0":
            others.add(parts[1])
            binding.dropped[name] = "only the first MTP layer is used, at every depth"
        else:
            kept[name] = value
    _note_layers(others, binding)
    return kept


def _note_layers(others: set[str], binding: HeadBinding) -> None:
    if others:
        binding.notes.append(
            f"the head has {len(others) + 1} MTP layers; the first is used at every depth"
        )


def _rename(layout: HeadLayout, tensors: Weights) -> Weights:
    out: Weights = {}
    unknown: list[str] = []
    for name, value in tensors.items():
        parameter = layout.parameter(name)
        if parameter is None:
            unknown.append(name)
        elif parameter in out:
            raise HeadWeightsError(
                f"two tensors of the head mean the same parameter {parameter}; one of them is {name}"
            )
        else:
            out[parameter] = value
    if unknown:
        raise HeadWeightsError(
            f"the head holds tensors that the {layout.name} layout does not know: {_list(unknown)}",
            hint="this is another head layout, or a newer one than this version reads",
        )
    return out


def _reshape(weights: Weights, trunk: Trunk) -> Weights:
    weights = stack_experts(unfuse_experts(weights))
    if any(".kv_b_proj." in name for name in weights):
        args = trunk.args
        weights = split_kv_b(
            weights,
            num_heads=args.num_attention_heads,
            nope_dim=args.qk_nope_head_dim,
            kv_rank=args.kv_lora_rank,
        )
    return weights


def _drop_copies(weights: Weights, trunk: Trunk, binding: HeadBinding) -> None:
    """Leave out embedding and output copies that equal the trunk's, compared on rows from the whole vocabulary."""
    rows = mx.arange(0, trunk.vocab_size, max(1, trunk.vocab_size // _COMPARED_ROWS))
    for own, theirs in (
        ("own_embedding", trunk.embed(rows[None])[0]),
        ("own_output", trunk.output_rows(rows)),
    ):
        name = f"{own}.weight"
        if name not in weights:
            continue
        mine = weights[name]
        is_whole = mine.shape == (trunk.vocab_size, trunk.hidden_size)
        allowed = 0.2 if trunk.has_quantized_vocabulary else 0.0
        if is_whole and f"{own}.scales" not in weights and _differ(mine[rows], theirs) <= allowed:
            del weights[name]
            binding.dropped[name] = "a copy of the trunk's"
        else:
            binding.notes.append(
                f"the head brings its own {own.removeprefix('own_')}; it is used for drafts"
            )


def _differ(mine: mx.array, theirs: mx.array) -> float:
    """The largest difference of two matrices, in units of the largest value of the second."""
    mine, theirs = mine.astype(mx.float32), theirs.astype(mx.float32)
    ratio: Any = (mx.abs(mine - theirs).max() / mx.maximum(mx.abs(theirs).max(), 1e-12)).item()
    return float(ratio)


def _gains(weights: Weights, trunk: Trunk, raw_norms: bool | None, binding: HeadBinding) -> Weights:
    if raw_norms is None:
        raw_norms = stored_as_delta(weights, named_parameters(trunk.model))
        binding.notes.append(
            "norm convention of the head told from its q/k norms: "
            + ("gain minus one" if raw_norms else "gain")
        )
    if raw_norms:
        binding.norm_encoding = "delta"
        return shift_norms(weights)
    return weights


def _build_module(layout: HeadLayout, weights: Weights, trunk: Trunk) -> MTPModule:
    is_moe = any(name.startswith("block.mlp.switch_mlp.") for name in weights)
    reused = trunk.layers[-1] if not trunk.is_recurrent else trunk.attention_layer
    return MTPModule(
        trunk.hidden_size,
        trunk.args.rms_norm_eps,
        layout.build_block(type(reused), trunk.args, is_moe),
        own_embedding="own_embedding.weight" in weights,
        own_output="own_output.weight" in weights,
        vocab_size=trunk.vocab_size,
    )


def _load_strictly(module: nn.Module, weights: Weights) -> None:
    expected = named_parameters(module)
    missing = sorted(expected.keys() - weights.keys())
    unexpected = sorted(weights.keys() - expected.keys())
    misshaped = [
        f"{name} is {tuple(weights[name].shape)}, expected {tuple(expected[name].shape)}"
        for name in sorted(expected.keys() & weights.keys())
        if weights[name].shape != expected[name].shape
    ]
    if missing or unexpected or misshaped:
        parts = [
            f"missing: {_list(missing)}" if missing else "",
            f"unexpected: {_list(unexpected)}" if unexpected else "",
            f"mis-shaped: {_list(misshaped)}" if misshaped else "",
        ]
        raise HeadWeightsError(
            "the head's tensors do not make a whole head; " + "; ".join(p for p in parts if p),
            hint="download the checkpoint again, or run it without its head (--no-mtp)",
        )
    module.load_weights(list(weights.items()), strict=True)


def _list(names: list[str], most: int = 8) -> str:
    shown = ", ".join(sorted(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
