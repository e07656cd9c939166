"""The public project's names of architectures, by the names of our families."""

from typing import Final

from mtplx.contracts.family import Family

ARCH_IDS: Final = {
    "qwen3_next": "qwen3-next-mtp",
    "qwen3_5": "qwen3-next-mtp",
    "deepseek_v3": "deepseek-v3-mtp",
    "deepseek_v32": "deepseek-v3-mtp",
    "deepseek_v4": "deepseek-v4",
    "glm4_moe": "glm4-moe-mtp",
    "glm4_moe_lite": "glm4-moe-lite-mtp",
    "glm_moe_dsa": "glm-moe-dsa-mtp",
    "glm_ocr": "glm-ocr-mtp",
    "mimo": "mimo-mtp",
    "nemotron_h": "nemotron-h-mtp",
    "step3p5": "step3p5-mtp",
    "hy_v3": "hy-v3-mtp",
    "gemma4_assistant": "gemma4-assistant-mtp",
    "minimax_m2": "minimax-m2-mtp",
    "ernie4_5_moe": "ernie-mtp",
    "exaone_moe": "exaone-moe-mtp",
    "exaone4_5": "exaone4-5-mtp",
    "longcat_flash": "longcat-flash-mtp",
    "pangu_ultra_moe": "pangu-ultra-moe-mtp",
}


def arch_id(family: Family) -> str | None:
    """The id that a contract of a model of `family` carries; some families share one."""
    return ARCH_IDS.get(family.name)
