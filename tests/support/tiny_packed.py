"""Tiny folders as AutoAWQ, GPTQ tools and compressed-tensors publish them, trunk and head packed."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Literal

import numpy as np

from tests.support import packers
from tests.support.tensorfile import Tensor, encode
from tests.support.tiny_weights import is_full_linear, kind_of, stored_dtype

if TYPE_CHECKING:
    from tests.support.tiny_families import Config
    from tests.support.tiny_layout import Values

Pack = Literal["awq", "gptq", "compressed"]

GROUP = 16

#: The `quantization_config` of each pack.
BLOCKS: dict[Pack, Config] = {
    "awq": {
        "quant_method": "awq",
        "bits": 4,
        "group_size": GROUP,
        "version": "gemm",
        "zero_point": True,
        "modules_to_not_convert": None,
    },
    "gptq": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": GROUP,
        "desc_act": True,
        "sym": False,
        "checkpoint_format": "gptq",
        "damp_percent": 0.01,
    },
    "compressed": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "input_activations": None,
                "weights": {
                    "num_bits": 4,
                    "type": "int",
                    "symmetric": False,
                    "strategy": "group",
                    "group_size": GROUP,
                    "actorder": None,
                },
            }
        },
    },
}


def pack_all(values: Values, dtype: str, pack: Pack) -> tuple[dict[str, Tensor], Values]:
    """Large matrices and the head's projection packed, the rest as `dtype`; also the values all
    of them stand for.
    """
    stored: dict[str, Tensor] = {}
    truth: Values = {}
    for name, value in values.items():
        wanted = is_full_linear(name) or kind_of(name) == "projection"
        if not wanted or value.ndim != 2 or not name.endswith(".weight"):
            stored[name], truth[name] = encode(value, stored_dtype(name, dtype)), value
            continue
        stem = name.removesuffix(".weight")
        shuffled = np.random.default_rng(zlib.crc32(name.encode())) if pack == "gptq" else None
        codes = packers.quantize(value, 4, packers.groups(value.shape[1], GROUP, shuffled))
        store = {
            "awq": packers.store_awq,
            "gptq": packers.store_gptq,
            "compressed": packers.store_compressed,
        }[pack]
        stored |= store(stem, codes)
        truth[name] = codes.truth
    return stored, truth
