"""The registry of families, as data: those whose heads run, and those that have none."""

from mtplx.contracts.family import Family, Wiring
from mtplx.contracts.pending_families import PENDING

_NEXTN = ("num_nextn_predict_layers",)
_NEXTN_PARTS = ("0.eh_proj.weight", "0.enorm.weight", "0.hnorm.weight")
_FUSED_PARTS = ("fc.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight")
_MASKED = Wiring(mask_position0=True)

_RUNNABLE = (
    Family(
        name="qwen3_next",
        title="Qwen3-Next",
        model_types=("qwen3_next",),
        architectures=("Qwen3NextForCausalLM",),
        layout="qwen",
        declared_by=("num_nextn_predict_layers", "mtp_num_hidden_layers"),
        zero_centred_norms=True,
        attention="gated gqa; gated delta in the trunk",
        essential=_FUSED_PARTS,
        runnable=True,
        notes="Published configs announce no head; it is found by its tensors.",
    ),
    Family(
        name="qwen3_5",
        title="Qwen3.5 / Qwen3.6",
        model_types=("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"),
        architectures=(
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
            "Qwen3_5ForCausalLM",
            "Qwen3_5MoeForCausalLM",
        ),
        layout="qwen",
        declared_by=("text_config.mtp_num_hidden_layers", "mtp_num_hidden_layers"),
        zero_centred_norms=True,
        attention="gated gqa; gated delta in the trunk",
        essential=_FUSED_PARTS,
        refused_keys=(
            "text_config.mtp_use_dedicated_embeddings",
            "mtp_use_dedicated_embeddings",
        ),
        runnable=True,
    ),
    Family(
        name="deepseek_v3",
        title="DeepSeek-V3 / R1 / V3.1",
        model_types=("deepseek_v3", "joyai_llm_flash"),
        architectures=("DeepseekV3ForCausalLM",),
        layout="nextn",
        declared_by=_NEXTN,
        wiring=_MASKED,
        attention="mla",
        essential=_NEXTN_PARTS,
        runnable=True,
        notes="Engines disagree whether the recycled hidden is taken before the output norm.",
    ),
    Family(
        name="glm4_moe",
        title="GLM-4.5 / 4.6 / 4.7",
        model_types=("glm4_moe",),
        architectures=("Glm4MoeForCausalLM",),
        layout="nextn",
        declared_by=_NEXTN,
        wiring=_MASKED,
        attention="gqa",
        essential=_NEXTN_PARTS,
        runnable=True,
        notes="Engines disagree whether the recycled hidden is taken before the output norm.",
    ),
    Family(
        name="mimo",
        title="MiMo-7B",
        model_types=("mimo",),
        architectures=("MiMoForCausalLM",),
        layout="mimo",
        declared_by=_NEXTN,
        wiring=Wiring(concat="hidden_embedding", mask_position0=True),
        attention="gqa",
        essential=("0.input_proj.weight", "0.token_layernorm.weight", "0.hidden_layernorm.weight"),
        runnable=True,
        notes="Other engines stop at depth 1; the one layer can be recycled.",
    ),
)

_AR_ONLY = (
    Family(
        name="llama",
        title="Llama",
        model_types=("llama", "iquestcoder"),
        architectures=("LlamaForCausalLM", "IQuestCoderForCausalLM"),
        layout="none",
        ar_only=True,
    ),
    Family(
        name="laguna",
        title="Laguna",
        model_types=("laguna",),
        architectures=("LagunaForCausalLM",),
        layout="none",
        ar_only=True,
    ),
    Family(
        name="lfm2_moe",
        title="LFM2 MoE",
        model_types=("lfm2_moe",),
        architectures=("Lfm2MoeForCausalLM",),
        layout="none",
        attention="gqa; short convolutions in the trunk",
        ar_only=True,
    ),
    Family(
        name="kimi_k2",
        title="Kimi-K2 / K2.5",
        model_types=("kimi_k2", "kimi_k25", "kimi_linear"),
        architectures=("KimiK25ForConditionalGeneration", "KimiLinearForCausalLM"),
        layout="none",
        declared_by=("text_config.num_nextn_predict_layers", "num_nextn_predict_layers"),
        attention="mla",
        ar_only=True,
        notes="Releases announce 0 MTP layers and ship none.",
    ),
    Family(
        name="minimax_m2",
        title="MiniMax-M2",
        model_types=("minimax_m2", "minimax"),
        architectures=("MiniMaxM2ForCausalLM",),
        layout="none",
        ar_only=True,
    ),
)

FAMILIES: tuple[Family, ...] = (*_RUNNABLE, *PENDING, *_AR_ONLY)
