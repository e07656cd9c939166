"""Float32 linear layers for the CPU, which read their weights once for the few rows of a round."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from mtplx.kernels.few_rows import few_rows


class FewRowsLinear(nn.Module):
    """The same product as the `nn.Linear` it is made from, whose parameters it shares."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weight = linear.weight
        if "bias" in linear:
            self.bias = linear.bias

    def __call__(self, x: mx.array) -> mx.array:
        """[..., D] to [..., N]."""
        y = few_rows(x, self.weight)
        return y + self.bias if "bias" in self else y


def install_few_rows(module: nn.Module) -> int:
    """Put a `FewRowsLinear` in the place of every float32 `nn.Linear` of this instance; returns how many."""
    replaced = [
        (name, FewRowsLinear(layer))
        for name, layer in module.named_modules()
        if type(layer) is nn.Linear and layer.weight.dtype == mx.float32
    ]
    if replaced:
        module.update_modules(tree_unflatten(replaced))
    return len(replaced)
