"""Model folders whose tensors hold next to nothing: right names, tiny shapes, no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.support.tensorfile import Tensor, write_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

INDEX = "model.safetensors.index.json"


def blank(*names: str, shape: tuple[int, ...] = (2,)) -> dict[str, Tensor]:
    """Zero tensors of dtype F32 under ``names``."""
    size = 4
    for dim in shape:
        size *= dim
    return {name: Tensor("F32", shape, bytes(size)) for name in names}


def trunk_names(layers: int, prefix: str = "model.") -> list[str]:
    """The fewest names that make a whole trunk."""
    return [
        f"{prefix}embed_tokens.weight",
        *(f"{prefix}layers.{k}.input_layernorm.weight" for k in range(layers)),
        f"{prefix}norm.weight",
    ]


def nextn_names(layer: int, prefix: str = "model.") -> list[str]:
    """A DeepSeek or GLM head at ``layer``."""
    parts = ("eh_proj", "enorm", "hnorm", "shared_head.norm", "self_attn.o_proj")
    return [f"{prefix}layers.{layer}.{part}.weight" for part in parts]


def qwen_head_names(prefix: str = "mtp.") -> list[str]:
    """A Qwen head."""
    parts = ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    inner = ("self_attn.q_norm", "self_attn.q_proj", "input_layernorm")
    return [
        *(f"{prefix}{part}.weight" for part in parts),
        *(f"{prefix}layers.0.{part}.weight" for part in inner),
    ]


def mimo_head_names(prefix: str = "model.mtp_layers.") -> list[str]:
    """A MiMo-7B head."""
    parts = ("input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm")
    return [f"{prefix}0.{part}.weight" for part in parts]


def write_model(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor] | Iterable[str],
    *,
    made_by: str = "pt",
) -> Path:
    """A folder with ``config`` and one ``model.safetensors``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    held = tensors if isinstance(tensors, Mapping) else blank(*tensors)
    write_tensors(folder / "model.safetensors", held, made_by=made_by)
    return folder


def write_sharded(folder: Path, shards: Mapping[str, Iterable[str]]) -> Path:
    """Shards holding the given names, and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for file, names in shards.items():
        names = list(names)
        write_tensors(folder / file, blank(*names))
        weight_map.update(dict.fromkeys(names, file))
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def config_of(model_type: str, layers: int = 2, **extra: Any) -> dict[str, Any]:
    """A config as small as inspection allows."""
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "vocab_size": 64,
        "max_position_embeddings": 128,
        **extra,
    }
