"""MiMo-7B: `model.mtp_layers.{i}` with `token_layernorm`, `hidden_layernorm`, `input_proj`, `final_layernorm`.

Names: vllm-project/vllm `vllm/model_executor/models/mimo_mtp.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.nn as nn

from mtplx.runtime.heads.layout import HeadLayout


def _build_block(layer_class: Callable[..., nn.Module], args: Any, is_moe: bool) -> nn.Module:  # noqa: ARG001
    return layer_class(args)


LAYOUT = HeadLayout(
    name="mimo",
    modules={
        "input_proj": "projection",
        "token_layernorm": "embedding_norm",
        "hidden_layernorm": "hidden_norm",
        "final_layernorm": "output_norm",
    },
    block_prefix="",
    build_block=_build_block,
)
