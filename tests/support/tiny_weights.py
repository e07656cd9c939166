"""Random values for tiny models: well scaled, reproducible name by name."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import numpy as np

from tests.support.tensorfile import round_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.support.tiny_families import Shapes

NUM_SPECIAL_TOKENS = 4

_KINDS = {
    "A_log": "decay",
    "dt_bias": "shift",
    "conv1d": "conv",
    "e_score_correction_bias": "router_bias",
    "embed_tokens": "vocabulary",
    "lm_head": "vocabulary",
    "head": "vocabulary",
    "eh_proj": "projection",
    "fc": "projection",
    "input_proj": "projection",
    "gate": "router",
    "shared_expert_gate": "router",
    "in_proj_a": "small_linear",
    "in_proj_b": "small_linear",
    "in_proj_ba": "small_linear",
    "o_proj": "output_linear",
    "out_proj": "output_linear",
    "down_proj": "output_linear",
}
_SPREAD = {"bias": 0.02, "router_bias": 0.05, "shift": 0.5, "conv": 0.5}
_MEAN_GAIN = {
    "q_norm": 1.74,
    "k_norm": 1.74,
    "pre_fc_norm_embedding": 0.5625,
    "pre_fc_norm_hidden": 0.625,
}


def kind_of(name: str) -> str:
    """What a tensor is for: `linear`, `output_linear`, `norm`, `gated_norm`, `router`, ..."""
    if name.endswith(".bias"):
        return "bias"
    last = name.removesuffix(".weight").rsplit(".", 1)[-1]
    if last in _KINDS:
        return _KINDS[last]
    if "norm" in last:
        return "gated_norm" if ".linear_attn." in name else "norm"
    return "linear"


def is_full_linear(name: str) -> bool:
    """Whether a tensor is a large matrix, which FP8 and quantised checkpoints compress."""
    return kind_of(name) in ("linear", "output_linear")


def _linear_spread(name: str, fan_in: int) -> float:
    """Blocks add little to the residual, a head's least: drafts are right often, not always."""
    unit = 1 / math.sqrt(fan_in)
    if kind_of(name) != "output_linear":
        return unit
    return unit * (0.3 if name.startswith("model.") else 0.1)


def _gains(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Gains on a grid of 1/128 inside [0.25, 2): gain and gain - 1 are both exact in bfloat16."""
    last = name.removesuffix(".weight").rsplit(".", 1)[-1]
    drawn = rng.normal(_MEAN_GAIN.get(last, 0.984), 0.06, shape)
    return np.clip(np.round(drawn * 128) / 128, 0.25, 255 / 128)


def _vocabulary(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Rows giving logits of spread 2.5, faint for special tokens so that greedy text goes on."""
    rows = rng.normal(0, 2.5 / math.sqrt(shape[1]), shape)
    rows[-NUM_SPECIAL_TOKENS:] *= 0.02
    return rows


def _projection(
    rng: np.random.Generator, shape: tuple[int, ...], *, hidden_first: bool
) -> NDArray[np.float64]:
    """Mostly the identity on the token embedding, so that the head often agrees with the trunk."""
    values = rng.normal(0, 0.2 / math.sqrt(shape[1]), shape)
    start = shape[0] if hidden_first else 0
    values[:, start : start + shape[0]] += np.eye(shape[0])
    return values


def draw(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """The values of one tensor; norms are gains (what the normalised value is multiplied by)."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    kind = kind_of(name)
    if kind in ("norm", "gated_norm"):
        values = _gains(rng, name, shape)
    elif kind == "vocabulary":
        values = _vocabulary(rng, shape)
    elif kind == "projection":
        values = _projection(rng, shape, hidden_first=name.endswith("input_proj.weight"))
    elif kind == "decay":
        values = np.log(rng.uniform(0.5, 4, shape))
    else:
        values = rng.normal(0, _SPREAD.get(kind) or _linear_spread(name, shape[-1]), shape)
    return values.astype(np.float32)


def stored_dtype(name: str, dtype: str) -> str:
    """Router correction biases are published in float32 whatever the rest is."""
    return "F32" if name.endswith("e_score_correction_bias") else dtype


def draw_all(shapes: Shapes, seed: int, dtype: str) -> dict[str, NDArray[np.float32]]:
    """All values of a set of tensors, already rounded to what ``dtype`` can store."""
    return {
        name: round_to(draw(name, shape, seed), stored_dtype(name, dtype))
        for name, shape in shapes.items()
    }
