"""DeepSeek-V3 and GLM-4.5: an extra layer `model.layers.{N}` with `enorm`, `hnorm`, `eh_proj`, `shared_head`.

Names: deepseek-ai/DeepSeek-V3 `README_WEIGHTS.md`; the output norm is `final_layernorm` in some exports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import mlx.nn as nn

from mtplx.runtime.heads.layout import HeadLayout


def _build_block(layer_class: Callable[..., nn.Module], args: Any, is_moe: bool) -> nn.Module:
    """The trunk's layer class; the head is sparse whatever `first_k_dense_replace` says of the trunk."""
    changes: dict[str, Any] = {"first_k_dense_replace": 0 if is_moe else args.num_hidden_layers + 1}
    if hasattr(args, "moe_layer_freq"):
        changes["moe_layer_freq"] = 1
    return layer_class(dataclasses.replace(args, **changes), args.num_hidden_layers)


LAYOUT = HeadLayout(
    name="nextn",
    modules={
        "eh_proj": "projection",
        "enorm": "embedding_norm",
        "hnorm": "hidden_norm",
        "shared_head.norm": "output_norm",
        "final_layernorm": "output_norm",
    },
    block_prefix="",
    build_block=_build_block,
)
