"""Weights of a folder as lazy arrays, and the reshaping that published layouts need."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.tensors import TensorIndex

Weights = dict[str, mx.array]

_EXPERT = re.compile(r"^(?P<stem>.*mlp)\.experts\.(?P<expert>\d+)\.(?P<rest>.+)$")
_FUSED = re.compile(
    r"^(?P<stem>.*mlp)\.experts\.(?P<proj>gate_up_proj|down_proj)(?P<suffix>\.\w+)?$"
)


def read_arrays(index: TensorIndex, on_file: Callable[[str, float], None] | None = None) -> Weights:
    """Every tensor of the index as a lazy array; `on_file(file, fraction)` is called once a file.

    Only the tensors that the index names are taken, so a file that was ignored stays ignored.
    """
    names: dict[str, list[str]] = defaultdict(list)
    for name, tensor in index.tensors.items():
        names[tensor.file].append(name)
    weights: Weights = {}
    for number, file in enumerate(sorted(names), start=1):
        loaded = _load(index.folder / file)
        weights.update((name, loaded[name]) for name in names[file])
        if on_file is not None:
            on_file(file, number / len(names))
    return weights


def named_parameters(module: nn.Module) -> Weights:
    """Every parameter of a module by its path."""
    parameters: Any = tree_flatten(module.parameters(), destination={})
    return dict(parameters)


def stack_experts(weights: Weights) -> Weights:
    """`mlp.experts.{e}.X` of every layer joined into `mlp.switch_mlp.X` with a leading expert axis.

    Raises:
        CorruptModelError: an expert is missing from the middle of the range.
    """
    out: Weights = {}
    groups: dict[str, dict[int, mx.array]] = defaultdict(dict)
    for name, value in weights.items():
        match = _EXPERT.match(name)
        if match is None:
            out[name] = value
        else:
            groups[f"{match['stem']}.switch_mlp.{match['rest']}"][int(match["expert"])] = value
    for name, experts in groups.items():
        missing = sorted(set(range(max(experts) + 1)) - set(experts))
        if missing:
            raise CorruptModelError(
                f"{name}: experts {missing} of 0..{max(experts)} are missing",
                hint="download the checkpoint again; its shards are incomplete",
            )
        out[name] = mx.stack([experts[e] for e in range(len(experts))])
    return out


def unfuse_experts(weights: Weights) -> Weights:
    """`mlp.experts.gate_up_proj [E, 2*Im, H]` (gate half first) and `mlp.experts.down_proj [E, H, Im]` as
    `mlp.switch_mlp.{gate,up,down}_proj.weight`; suffixes of quantised packs (`.scales`, `.biases`) are kept.
    """
    out: Weights = {}
    for name, value in weights.items():
        match = _FUSED.match(name)
        if match is None:
            out[name] = value
            continue
        stem, suffix = f"{match['stem']}.switch_mlp", match["suffix"] or ".weight"
        if match["proj"] == "down_proj":
            out[f"{stem}.down_proj{suffix}"] = value
        else:
            gate, up = mx.split(value, 2, axis=-2)
            out[f"{stem}.gate_proj{suffix}"] = gate
            out[f"{stem}.up_proj{suffix}"] = up
    return out


def split_kv_b(weights: Weights, *, num_heads: int, nope_dim: int, kv_rank: int) -> Weights:
    """`self_attn.kv_b_proj [heads * (nope + v), rank]` as the absorbed pair mlx-lm computes with:
    `embed_q [heads, rank, nope]` and `unembed_out [heads, v, rank]` (mlx-lm `models/deepseek_v3.py`).

    A quantised `kv_b_proj` is dequantised first: the pair can't keep its groups.
    """
    out = {name: value for name, value in weights.items() if ".kv_b_proj." not in name}
    for name in [n for n in weights if n.endswith("self_attn.kv_b_proj.weight")]:
        stem = name.removesuffix("kv_b_proj.weight")
        weight = weights[name]
        if (scales := weights.get(f"{stem}kv_b_proj.scales")) is not None:
            weight = mx.dequantize(
                weight,
                scales,
                weights.get(f"{stem}kv_b_proj.biases"),
                group_size=kv_rank // scales.shape[-1],
                bits=weight.shape[-1] * 32 // kv_rank,
            )
        per_head = weight.reshape(num_heads, -1, kv_rank)
        out[f"{stem}embed_q.weight"] = mx.contiguous(per_head[:, :nope_dim, :].swapaxes(-1, -2))
        out[f"{stem}unembed_out.weight"] = mx.contiguous(per_head[:, nope_dim:, :])
    return out


def _load(path: Path) -> Weights:
    try:
        loaded = mx.load(str(path))
    except (RuntimeError, ValueError) as error:
        raise CorruptModelError(
            f"{path}: mlx cannot read this file: {error}", hint="download the file again"
        ) from error
    if not isinstance(loaded, dict):
        raise CorruptModelError(f"{path}: expected named tensors, found {type(loaded).__name__}")
    return loaded
