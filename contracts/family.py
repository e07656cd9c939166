"""What is known about one family of models that may carry an MTP head."""

from dataclasses import dataclass
from typing import Literal

HiddenPoint = Literal["pre", "post"]
ConcatOrder = Literal["embedding_hidden", "hidden_embedding"]
Layout = Literal[
    "qwen", "nextn", "mimo", "mimo_v2", "nemotron", "ernie", "longcat", "assistant", "none"
]


@dataclass(frozen=True, slots=True)
class Wiring:
    """How hidden states and embeddings run through a head. A wrong one only costs acceptance.

    `feed` is the trunk hidden given to depth 1, before or after the trunk's final norm; `recycle`
    the head hidden given to the next depth, before or after the head's output norm. `concat` is
    the order in which the two normed halves enter the fusing projection. With `layer_per_depth`
    depth k runs through physical layer k. `mask_position0` zeroes the embedding of position 0.
    """

    feed: HiddenPoint = "post"
    recycle: HiddenPoint = "post"
    concat: ConcatOrder = "embedding_hidden"
    layer_per_depth: bool = False
    mask_position0: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One row of the registry.

    `declared_by` are dotted config keys that announce the number of MTP layers. `essential` are
    head-relative names without which tensors under the head's prefix are no head; in numbered
    layouts they are those of layer 0. `refused_keys` are dotted config keys that must be absent or
    false. `has_trunk` says that mlx-lm runs the trunk, `runnable` that mtplx runs the head.
    """

    name: str
    title: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    layout: Layout
    declared_by: tuple[str, ...] = ()
    wiring: Wiring = Wiring()
    max_depth: int | None = None
    zero_centred_norms: bool = False
    own_embedding: bool = False
    own_output_head: bool = False
    attention: str = "gqa"
    essential: tuple[str, ...] = ()
    refused_keys: tuple[str, ...] = ()
    has_trunk: bool = True
    runnable: bool = False
    ar_only: bool = False
    notes: str = ""
