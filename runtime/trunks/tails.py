"""What follows the mixer of a layer, compiled: residuals, MLP, and the norm that the next layer begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import mlx.nn as nn

# One compiled variant a number of rows; longer forwards are prompts, where calls cost little beside the products.
MAX_ROWS = 16

Tail = Callable[[mx.array, mx.array], tuple[mx.array, mx.array]]


def compile_tails(layers: Sequence[nn.Module], final_norm: nn.Module) -> list[Tail]:
    """One function a layer: (residual x, output of the mixer) -> (x after the layer, x normed for what comes next).

    For pre-norm layers with `post_attention_layernorm` and `mlp`. The operations are those of the layer itself; on the
    CPU a compiled call saves most of the time that hundreds of small operations cost.
    """
    norms = [*(layer.input_layernorm for layer in layers[1:]), final_norm]
    return [_compile(layer, norm) for layer, norm in zip(layers, norms, strict=True)]


def tail_of(layer: nn.Module, next_norm: nn.Module) -> Tail:
    """The tail of one layer, not compiled; `next_norm` norms what comes next."""

    def tail(x: mx.array, mixed: mx.array) -> tuple[mx.array, mx.array]:
        x = x + mixed
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return x, next_norm(x)

    return tail


def _compile(layer: nn.Module, next_norm: nn.Module) -> Tail:
    # Weights are inputs, not constants, so that a changed weight is seen.
    weights = [layer.mlp.state, layer.post_attention_layernorm.state, next_norm.state]
    compiled: Tail = mx.compile(tail_of(layer, next_norm), inputs=weights)
    return compiled
