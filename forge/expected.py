"""The parameters that a family's config calls for: names as mlx-lm has them, and their shapes.

A size that the config does not state is None and not compared. Names: mlx-lm `models/qwen3_next.py`,
`qwen3_5.py`, `deepseek_v3.py`, `glm4_moe.py` and `mimo.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtplx.contracts.families import num_trunk_layers, text_config
from mtplx.contracts.family import Family

Size = int | None
Shapes = dict[str, tuple[Size, ...]]

_QWEN = ("qwen3_next", "qwen3_5")
_TIES_VOCABULARY = (*_QWEN, "mimo")


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes of one model, by its config."""

    family: str
    text: Mapping[str, Any]

    def size(self, *keys: str) -> Size:
        """The product of config values; None when one is no positive integer."""
        product = 1
        for key in keys:
            value = self.text.get(key)
            if type(value) is not int or value <= 0:
                return None
            product *= value
        return product

    def count(self, key: str, default: int) -> int:
        """A config value where mlx-lm has a default for it."""
        value = self.text.get(key)
        return value if type(value) is int and value >= 0 else default

    @property
    def hidden(self) -> Size:
        """Width of the residual stream."""
        return self.size("hidden_size")

    @property
    def head_dim(self) -> Size:
        """Width of one attention head."""
        hidden, heads = self.hidden, self.size("num_attention_heads")
        if self.family != "mimo" and self.text.get("head_dim") is not None:
            return self.size("head_dim")
        return hidden // heads if hidden and heads else None

    @property
    def experts(self) -> Size:
        """Routed experts of a sparse layer, None where there are none."""
        return self.size("num_experts" if self.family in _QWEN else "n_routed_experts")

    @property
    def ties_vocabulary(self) -> bool:
        """Whether the embedding is the output head, too."""
        return bool(self.text.get("tie_word_embeddings")) and self.family in _TIES_VOCABULARY

    def is_linear(self, layer: int) -> bool:
        """Whether the layer is a gated-delta one."""
        interval = self.count("full_attention_interval", 4)
        return self.family in _QWEN and interval > 0 and (layer + 1) % interval != 0

    def is_sparse(self, layer: int) -> bool:
        """Whether the layer has experts."""
        if self.experts is None:
            return False
        if self.family == "qwen3_next":
            only = self.text.get("mlp_only_layers")
            step = self.count("decoder_sparse_step", 1) or 1
            is_dense = isinstance(only, list) and layer in only
            return not is_dense and (layer + 1) % step == 0
        if self.family == "qwen3_5":
            return True
        freq = self.count("moe_layer_freq", 1) or 1 if self.family == "deepseek_v3" else 1
        return layer >= self.count("first_k_dense_replace", 0) and layer % freq == 0


def expected_trunk(family: Family, config: Mapping[str, Any]) -> Shapes:
    """Every parameter of the trunk of a runnable `family`."""
    geometry = Geometry(family.name, text_config(config))
    at = "language_model." if family.name == "qwen3_5" else ""
    vocabulary = (geometry.size("vocab_size"), geometry.hidden)
    shapes: Shapes = {f"{at}model.embed_tokens.weight": vocabulary}
    if not geometry.ties_vocabulary:
        shapes[f"{at}lm_head.weight"] = vocabulary
    shapes[f"{at}model.norm.weight"] = (geometry.hidden,)
    for layer in range(num_trunk_layers(config)):
        block = expected_block(
            geometry,
            is_linear=geometry.is_linear(layer),
            is_sparse=geometry.is_sparse(layer),
        )
        shapes |= {f"{at}model.layers.{layer}.{name}": shape for name, shape in block.items()}
    return shapes


def expected_block(geometry: Geometry, *, is_linear: bool, is_sparse: bool) -> Shapes:
    """One decoder layer, of the trunk or of a head."""
    hidden = (geometry.hidden,)
    shapes: Shapes = dict.fromkeys(
        ("input_layernorm.weight", "post_attention_layernorm.weight"), hidden
    )
    if is_linear:
        shapes |= _under("linear_attn", _gated_delta(geometry))
    elif geometry.family == "deepseek_v3":
        shapes |= _under("self_attn", _latent_attention(geometry))
    else:
        shapes |= _under("self_attn", _attention(geometry))
    mlp = (
        _sparse(geometry)
        if is_sparse
        else _mlp(geometry.hidden, geometry.size("intermediate_size"))
    )
    return shapes | _under("mlp", mlp)


def _under(prefix: str, shapes: Shapes) -> Shapes:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def _mlp(hidden: Size, inner: Size) -> Shapes:
    return {
        "gate_proj.weight": (inner, hidden),
        "up_proj.weight": (inner, hidden),
        "down_proj.weight": (hidden, inner),
    }


def _sparse(g: Geometry) -> Shapes:
    inner = g.size("moe_intermediate_size")
    shapes: Shapes = {"gate.weight": (g.experts, g.hidden)}
    shapes |= {
        f"switch_mlp.{name}": (g.experts, *shape) for name, shape in _mlp(g.hidden, inner).items()
    }
    if g.family in _QWEN:
        shared = _mlp(g.hidden, g.size("shared_expert_intermediate_size"))
        return (
            shapes | _under("shared_expert", shared) | {"shared_expert_gate.weight": (1, g.hidden)}
        )
    shapes["gate.e_score_correction_bias"] = (g.experts,)
    if g.text.get("n_shared_experts") is not None:
        shared = _mlp(g.hidden, g.size("moe_intermediate_size", "n_shared_experts"))
        shapes |= _under("shared_experts", shared)
    return shapes


def _attention(g: Geometry) -> Shapes:
    width = g.head_dim
    query, keys = (
        None if width is None or heads is None else heads * width
        for heads in (g.size("num_attention_heads"), g.size("num_key_value_heads"))
    )
    # Qwen's query projection carries an output gate.
    asked = 2 * query if g.family in _QWEN and query else query
    rows: dict[str, Size] = {"q_proj": asked, "k_proj": keys, "v_proj": keys}
    shapes: Shapes = {f"{name}.weight": (size, g.hidden) for name, size in rows.items()}
    shapes["o_proj.weight"] = (g.hidden, query)
    if g.family == "mimo" or g.text.get("attention_bias"):
        shapes |= {f"{name}.bias": (size,) for name, size in rows.items()}
        if g.family in _QWEN:
            shapes["o_proj.bias"] = (g.hidden,)
    if g.family in _QWEN or g.text.get("use_qk_norm"):
        shapes |= {"q_norm.weight": (width,), "k_norm.weight": (width,)}
    return shapes


def _latent_attention(g: Geometry) -> Shapes:
    heads, rank = g.size("num_attention_heads"), g.size("kv_lora_rank")
    nope, rope, value = (
        g.size(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )
    asked = heads * (nope + rope) if heads and nope and rope else None
    shapes: Shapes = {
        "kv_a_proj_with_mqa.weight": (rank + rope if rank and rope else None, g.hidden),
        "kv_a_layernorm.weight": (rank,),
        "embed_q.weight": (heads, rank, nope),
        "unembed_out.weight": (heads, value, rank),
        "o_proj.weight": (g.hidden, heads * value if heads and value else None),
    }
    if g.text.get("q_lora_rank", 1536) is None:
        shapes["q_proj.weight"] = (asked, g.hidden)
    else:
        query = g.size("q_lora_rank")
        shapes["q_a_proj.weight"] = (query, g.hidden)
        shapes["q_a_layernorm.weight"] = (query,)
        shapes["q_b_proj.weight"] = (asked, query)
    if g.text.get("attention_bias"):
        shapes |= {"kv_a_proj_with_mqa.bias": (None,), "o_proj.bias": (g.hidden,)}
        if "q_a_proj.weight" in shapes:
            shapes["q_a_proj.bias"] = (g.size("q_lora_rank"),)
    return shapes


def _gated_delta(g: Geometry) -> Shapes:
    heads = g.size("linear_num_value_heads")
    key = g.size("linear_num_key_heads", "linear_key_head_dim")
    value = g.size("linear_num_value_heads", "linear_value_head_dim")
    mixed = 2 * key + value if key and value else None
    into: dict[str, Size]
    if g.family == "qwen3_next":
        into = {
            "in_proj_qkvz": mixed + value if mixed and value else None,
            "in_proj_ba": 2 * heads if heads else None,
        }
    else:
        into = {"in_proj_qkv": mixed, "in_proj_z": value, "in_proj_a": heads, "in_proj_b": heads}
    return {
        **{f"{name}.weight": (rows, g.hidden) for name, rows in into.items()},
        # [C, 1, K] as published, [C, K, 1] in MLX packs.
        "conv1d.weight": (mixed, None, None),
        "A_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (g.size("linear_value_head_dim"),),
        "out_proj.weight": (g.hidden, value),
    }
