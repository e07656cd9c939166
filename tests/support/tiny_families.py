"""Published configuration keys and tensor shapes of each family, at toy size."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

FamilyName = Literal[
    "qwen3_5", "qwen3_5_moe", "qwen3_next", "deepseek_v3", "glm4_moe", "mimo", "llama"
]
FAMILY_NAMES: tuple[FamilyName, ...] = get_args(FamilyName)

QWEN: tuple[FamilyName, ...] = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
NEXTN: tuple[FamilyName, ...] = ("deepseek_v3", "glm4_moe")
ZERO_CENTRED = QWEN
HEAD_PREFIX = {
    **dict.fromkeys(QWEN, "mtp."),
    **dict.fromkeys(NEXTN, "model.layers."),
    "mimo": "model.mtp_layers.",
}
ARCHITECTURE = {
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_next": "Qwen3NextForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "mimo": "MiMoForCausalLM",
    "llama": "LlamaForCausalLM",
}

Config: TypeAlias = dict[str, Any]
Shapes: TypeAlias = dict[str, tuple[int, ...]]


def _common(family: str, layers: int, vocab: int, hidden: int) -> Config:
    return {
        "model_type": family,
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": vocab - 2,
    }


def _qwen(family: str, hidden: int) -> Config:
    delta = {
        "head_dim": hidden // 2,
        "full_attention_interval": 2,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": hidden // 2,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "partial_rotary_factor": 0.25,
    }
    if family == "qwen3_5":
        return delta
    return {
        **delta,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "moe_intermediate_size": hidden,
        "shared_expert_intermediate_size": hidden,
    }


def _nextn(hidden: int) -> Config:
    return {
        "moe_intermediate_size": hidden,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
    }


def _own(family: str, hidden: int) -> Config:
    """Keys a family adds to or changes in the common ones."""
    if family in QWEN:
        return _qwen(family, hidden)
    if family == "deepseek_v3":
        mla = {
            "num_key_value_heads": 2,
            "q_lora_rank": hidden,
            "kv_lora_rank": hidden,
            "qk_nope_head_dim": hidden // 2,
            "qk_rope_head_dim": hidden // 4,
            "v_head_dim": hidden // 2,
            "moe_layer_freq": 1,
        }
        return {**_nextn(hidden), **mla, "n_group": 2, "topk_group": 1}
    if family == "glm4_moe":
        attention = {"attention_bias": True, "use_qk_norm": True, "partial_rotary_factor": 0.5}
        groups = {"n_group": 1, "topk_group": 1}
        return {**_nextn(hidden), **attention, **groups, "head_dim": hidden // 2}
    if family == "mimo":
        return {"attention_bias": True}
    return {}


def _wrap(family: str, text: Config) -> Config:
    """Qwen3.5 keeps its text model in `text_config` and its rope keys in one dict."""
    rotary = int(text["head_dim"] * text["partial_rotary_factor"])
    text = {key: value for key, value in text.items() if key not in ("rope_theta", "rope_scaling")}
    text["model_type"] = f"{family}_text"
    text["mtp_use_dedicated_embeddings"] = False
    text["layer_types"] = [
        "linear_attention" if is_linear(text, layer) else "full_attention"
        for layer in range(text["num_hidden_layers"])
    ]
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": text["partial_rotary_factor"],
        "mrope_section": [rotary // 2 - 2 * (rotary // 6), rotary // 6, rotary // 6],
        "mrope_interleaved": True,
    }
    return {
        "architectures": [ARCHITECTURE[family]],
        "model_type": family,
        "text_config": text,
        "tie_word_embeddings": text["tie_word_embeddings"],
    }


def make_config(family: FamilyName, layers: int, vocab: int, hidden: int) -> Config:
    """The published `config.json` of a family, without the key that declares a head."""
    text = {**_common(family, layers, vocab, hidden), **_own(family, hidden)}
    if family in ("qwen3_5", "qwen3_5_moe"):
        return _wrap(family, text)
    return {"architectures": [ARCHITECTURE[family]], **text}


def text_part(config: Config) -> Config:
    """The dict which holds the text model's keys."""
    text: Config = config.get("text_config", config)
    return text


def is_linear(text: Config, layer: int) -> bool:
    """Whether a Qwen layer is a gated-delta one."""
    return (layer + 1) % int(text["full_attention_interval"]) != 0


def declare_head(config: Config, family: FamilyName, heads: int) -> None:
    """Add the field which announces a head (Qwen3-Next and Llama publish none)."""
    if family in ("qwen3_5", "qwen3_5_moe"):
        config["text_config"]["mtp_num_hidden_layers"] = heads
    elif family in (*NEXTN, "mimo"):
        config["num_nextn_predict_layers"] = heads


def _linears(at: str, sizes: dict[str, tuple[int, int]]) -> Shapes:
    return {f"{at}{name}.weight": shape for name, shape in sizes.items()}


def _norms(at: str, size: int, *names: str) -> Shapes:
    return {f"{at}{name}.weight": (size,) for name in names}


def _mlp(at: str, hidden: int, inner: int) -> Shapes:
    up = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden)}
    return _linears(at, {**up, "down_proj": (hidden, inner)})


def _moe(at: str, c: Config) -> Shapes:
    hidden, inner = c["hidden_size"], c["moe_intermediate_size"]
    experts = c.get("num_experts") or c["n_routed_experts"]
    shapes: Shapes = {f"{at}gate.weight": (experts, hidden)}
    if "n_routed_experts" in c:
        shapes[f"{at}gate.e_score_correction_bias"] = (experts,)
        shapes |= _mlp(f"{at}shared_experts.", hidden, inner * c["n_shared_experts"])
    else:
        shapes |= _mlp(f"{at}shared_expert.", hidden, c["shared_expert_intermediate_size"])
        shapes[f"{at}shared_expert_gate.weight"] = (1, hidden)
    for expert in range(experts):
        shapes |= _mlp(f"{at}experts.{expert}.", hidden, inner)
    return shapes


def _attention(at: str, c: Config, *, gated: bool, bias: bool, qk_norm: bool) -> Shapes:
    hidden, heads, kv_heads = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    size = c.get("head_dim") or hidden // heads
    rows = {
        "q_proj": heads * size * (2 if gated else 1),
        "k_proj": kv_heads * size,
        "v_proj": kv_heads * size,
    }
    shapes = _linears(at, {name: (n, hidden) for name, n in rows.items()})
    shapes |= _linears(at, {"o_proj": (hidden, heads * size)})
    if bias:
        shapes |= {f"{at}{name}.bias": (n,) for name, n in rows.items()}
    return shapes | (_norms(at, size, "q_norm", "k_norm") if qk_norm else {})


def _latent_attention(at: str, c: Config) -> Shapes:
    hidden, heads, value = c["hidden_size"], c["num_attention_heads"], c["v_head_dim"]
    query, latent = c["q_lora_rank"], c["kv_lora_rank"]
    nope, rope = c["qk_nope_head_dim"], c["qk_rope_head_dim"]
    return {
        **_linears(at, {"q_a_proj": (query, hidden), "q_b_proj": (heads * (nope + rope), query)}),
        **_linears(at, {"kv_a_proj_with_mqa": (latent + rope, hidden)}),
        **_linears(at, {"kv_b_proj": (heads * (nope + value), latent)}),
        **_linears(at, {"o_proj": (hidden, heads * value)}),
        **_norms(at, query, "q_a_layernorm"),
        **_norms(at, latent, "kv_a_layernorm"),
    }


def _gated_delta(at: str, family: str, c: Config) -> Shapes:
    hidden, heads = c["hidden_size"], c["linear_num_value_heads"]
    key = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    value = heads * c["linear_value_head_dim"]
    if family == "qwen3_next":
        into = {"in_proj_qkvz": 2 * key + 2 * value, "in_proj_ba": 2 * heads}
    else:
        into = {"in_proj_qkv": 2 * key + value, "in_proj_z": value}
        into |= {"in_proj_a": heads, "in_proj_b": heads}
    return {
        **_linears(at, {name: (rows, hidden) for name, rows in into.items()}),
        f"{at}conv1d.weight": (2 * key + value, 1, c["linear_conv_kernel_dim"]),
        f"{at}A_log": (heads,),
        f"{at}dt_bias": (heads,),
        **_norms(at, c["linear_value_head_dim"], "norm"),
        **_linears(at, {"out_proj": (hidden, value)}),
    }


def _block(at: str, family: str, c: Config, *, layer: int, head: bool) -> Shapes:
    """One decoder layer; a head's has full attention, and experts where the family has them."""
    shapes = _norms(at, c["hidden_size"], "input_layernorm", "post_attention_layernorm")
    if family in QWEN and not head and is_linear(c, layer):
        shapes |= _gated_delta(f"{at}linear_attn.", family, c)
    elif family == "deepseek_v3":
        shapes |= _latent_attention(f"{at}self_attn.", c)
    else:
        qk_norm = family in QWEN or bool(c.get("use_qk_norm"))
        bias = bool(c["attention_bias"])
        shapes |= _attention(f"{at}self_attn.", c, gated=family in QWEN, bias=bias, qk_norm=qk_norm)
    experts = family in QWEN and "num_experts" in c
    if experts or (family in NEXTN and (head or layer >= c["first_k_dense_replace"])):
        return shapes | _moe(f"{at}mlp.", c)
    return shapes | _mlp(f"{at}mlp.", c["hidden_size"], c["intermediate_size"])


def trunk_shapes(family: FamilyName, config: Config) -> Shapes:
    """Published names and shapes of the trunk, experts one by one."""
    c = text_part(config)
    at = "model.language_model." if "text_config" in config else "model."
    shapes: Shapes = {f"{at}embed_tokens.weight": (c["vocab_size"], c["hidden_size"])}
    for layer in range(c["num_hidden_layers"]):
        shapes |= _block(f"{at}layers.{layer}.", family, c, layer=layer, head=False)
    shapes |= _norms(at, c["hidden_size"], "norm")
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], c["hidden_size"])
    return shapes


def head_shapes(family: FamilyName, config: Config, heads: int) -> Shapes:
    """Published names (without the prefix in `HEAD_PREFIX`) and shapes of the head."""
    c = text_part(config)
    hidden, vocab = c["hidden_size"], c["vocab_size"]
    shapes: Shapes = {}
    if family in QWEN:
        shapes["fc.weight"] = (hidden, 2 * hidden)
        shapes |= _norms("", hidden, "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    for head in range(heads if family in HEAD_PREFIX else 0):
        if family in QWEN:
            at = f"layers.{head}."
        elif family == "mimo":
            at = f"{head}."
            shapes[f"{at}input_proj.weight"] = (hidden, 2 * hidden)
            names = ("token_layernorm", "hidden_layernorm", "final_layernorm")
            shapes |= _norms(at, hidden, *names)
        else:
            at = f"{c['num_hidden_layers'] + head}."
            shapes[f"{at}eh_proj.weight"] = (hidden, 2 * hidden)
            shapes |= _norms(at, hidden, "enorm", "hnorm", "shared_head.norm")
            shapes[f"{at}embed_tokens.weight"] = (vocab, hidden)
            shapes[f"{at}shared_head.head.weight"] = (vocab, hidden)
        shapes |= _block(at, family, c, layer=0, head=True)
    return shapes
