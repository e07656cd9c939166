"""What a head layout has to say: the names of its tensors and the trunk block it reuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.nn as nn

# Copies of the trunk's embedding and output head that some exporters ship inside the MTP layer.
OWN_TENSORS = {
    "embed_tokens": "own_embedding",
    "shared_head.head": "own_output",
    "lm_head": "own_output",
}


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """Names of one published head layout.

    `modules` maps a stem of the checkpoint (after the layer number) to the attribute of `MTPModule`; stems under
    `block_prefix` belong to the block. `build_block(layer_class, args, is_moe)` makes the family's decoder layer.
    """

    name: str
    modules: Mapping[str, str]
    block_prefix: str
    build_block: Callable[[Callable[..., nn.Module], Any, bool], nn.Module]

    def parameter(self, name: str) -> str | None:
        """The parameter path in `MTPModule` of a tensor named relative to its MTP layer; None when unknown."""
        stem, _, leaf = name.rpartition(".")
        if stem in self.modules:
            return f"{self.modules[stem]}.{leaf}"
        if stem in OWN_TENSORS:
            return f"{OWN_TENSORS[stem]}.{leaf}"
        if self.block_prefix and not name.startswith(self.block_prefix):
            return None
        rest = name.removeprefix(self.block_prefix)
        if rest.startswith(("self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm.")):
            return f"block.{rest}"
        return None
