"""Qwen3-Next, Qwen3.5 and 3.6: `mtp.fc`, `mtp.pre_fc_norm_*`, `mtp.layers.0`, `mtp.norm`.

Names: vllm-project/vllm `vllm/model_executor/models/qwen3_next_mtp.py` and `qwen3_5_mtp.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import mlx.nn as nn

from mtplx.runtime.heads.layout import HeadLayout


def _build_block(layer_class: Callable[..., nn.Module], args: Any, is_moe: bool) -> nn.Module:
    """A full-attention layer of the trunk's class, sparse or dense as the head's tensors are."""
    changes: dict[str, Any] = {}
    if not is_moe:
        changes["num_experts"] = 0
    elif hasattr(args, "mlp_only_layers"):
        changes.update(mlp_only_layers=[], decoder_sparse_step=1)
    block_args = dataclasses.replace(args, **changes)
    return layer_class(block_args, layer_idx=args.full_attention_interval - 1)


LAYOUT = HeadLayout(
    name="qwen",
    modules={
        "fc": "projection",
        "pre_fc_norm_embedding": "embedding_norm",
        "pre_fc_norm_hidden": "hidden_norm",
        "norm": "output_norm",
    },
    block_prefix="layers.0.",
    build_block=_build_block,
)
