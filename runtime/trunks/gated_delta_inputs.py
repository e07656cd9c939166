"""The input projections of gated-delta layers, brought to one order of features."""

from __future__ import annotations

import copy

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import qwen3_next


def input_projections(layer: nn.Module) -> list[nn.Module]:
    """Linear layers whose outputs, one after the other, are [q | k | v | gate | beta | decay]."""
    if isinstance(layer, qwen3_next.Qwen3NextGatedDeltaNet):
        num_k, ratio = layer.num_k_heads, layer.num_v_heads // layer.num_k_heads
        dim_k, dim_v = layer.head_k_dim, ratio * layer.head_v_dim
        layers = [
            _reordered(layer.in_proj_qkvz, _ungrouped(num_k, [dim_k, dim_k, dim_v, dim_v])),
            _reordered(layer.in_proj_ba, _ungrouped(num_k, [ratio, ratio])),
        ]
    else:
        layers = [layer.in_proj_qkv, layer.in_proj_z, layer.in_proj_b, layer.in_proj_a]
    if any(type(p) is not nn.Linear or "bias" in p for p in layers):
        return layers
    # One product instead of several: the weights are read once either way, the calls are not free.
    return [_linear(mx.concatenate([p.weight for p in layers]))]


def _ungrouped(num_groups: int, widths: list[int]) -> mx.array:
    """Where features grouped by key head lie, in an order with all groups of a kind together."""
    features = mx.arange(num_groups * sum(widths)).reshape(num_groups, sum(widths))
    cuts = [sum(widths[: i + 1]) for i in range(len(widths) - 1)]
    return mx.concatenate([part.flatten() for part in mx.split(features, cuts, axis=1)])


def _reordered(layer: nn.Module, order: mx.array) -> nn.Module:
    """A copy of a linear layer, quantised or not, with its output features in another order."""
    if type(layer) is nn.Linear and "bias" not in layer:
        return _linear(layer.weight[order])
    reordered: nn.Module = copy.copy(layer)
    for name, value in layer.items():
        if isinstance(value, mx.array):
            reordered[name] = value[order]
    return reordered


def _linear(weight: mx.array) -> nn.Linear:
    linear = nn.Linear(1, 1, bias=False)
    linear.weight = weight
    mx.eval(weight)
    return linear
