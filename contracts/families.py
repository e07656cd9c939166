"""Which family a model belongs to, and what its config says about an MTP head.

Decided from `model_type`, `architectures` and tensor names; folder and repository names have no
influence.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.family import Family, Wiring
from mtplx.contracts.family_table import FAMILIES
from mtplx.contracts.head_names import HeadTensors, find_head_names

__all__ = [
    "FAMILIES",
    "Family",
    "HeadTensors",
    "Wiring",
    "config_value",
    "declared_heads",
    "find_family",
    "find_head",
    "num_trunk_layers",
    "text_config",
    "unknown_mtp_keys",
]

# Spellings of "number of MTP layers" seen in public configs, whatever the family.
_COUNT_KEYS = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_layers",
    "mtp_num_layers",
    "num_mtp_predict_layers",
)
# A pattern that describes one MTP layer block by block.
_PATTERN_KEYS = ("mtp_hybrid_override_pattern", "mtp_layers_block_type", "mtp_layer_types")
_UNDERSTOOD_KEYS = frozenset(
    (
        *_COUNT_KEYS,
        *_PATTERN_KEYS,
        "mtp_use_dedicated_embeddings",
        "mtp_sliding_windows",
        "mtp_mlp_layer_types",
        "mtp_n_routed_experts",
        "mtp_hidden_states_first",
        "index_share_for_mtp_iteration",
    )
)
_LAYER_KEYS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `config` that describes the language model."""
    nested = config.get("text_config")
    return dict(nested) if isinstance(nested, dict) else dict(config)


def find_family(config: Mapping[str, Any]) -> Family | None:
    """The family that `config` names: by `model_type`, then the text model's, then architecture."""
    for model_type in (config.get("model_type"), text_config(config).get("model_type")):
        for family in FAMILIES:
            if model_type in family.model_types:
                return family
    architectures = config.get("architectures")
    if isinstance(architectures, str):
        architectures = [architectures]
    if not isinstance(architectures, list):
        return None
    return next((f for f in FAMILIES for a in architectures if a in f.architectures), None)


def num_trunk_layers(config: Mapping[str, Any]) -> int:
    """Layers of the trunk, MTP layers not counted. Raises CorruptModelError when not stated."""
    text = text_config(config)
    for key in _LAYER_KEYS:
        if key in text:
            count = text[key]
            if type(count) is int and count > 0:
                return count
            raise CorruptModelError(
                f"config.json gives {key} as {count!r}, expected a positive integer.",
                hint="Fetch config.json again.",
            )
    raise CorruptModelError(
        "config.json does not say how many layers the model has (num_hidden_layers).",
        hint="Fetch config.json again.",
    )


def declared_heads(config: Mapping[str, Any], family: Family) -> int | None:
    """MTP layers that `config` announces, None when it says nothing.

    The family's own keys are read first, then every known spelling at both levels. A pattern of
    blocks counts as one layer.
    """
    everywhere = (f"{level}{key}" for key in (*_COUNT_KEYS, *_PATTERN_KEYS) for level in _LEVELS)
    for key in (*family.declared_by, *everywhere):
        value = config_value(config, key)
        if type(value) is int and value >= 0:
            return value
        if key.rpartition(".")[2] in _PATTERN_KEYS and isinstance(value, str | list) and value:
            return 1
    return None


def find_head(
    family: Family, config: Mapping[str, Any], tensor_names: Iterable[str]
) -> HeadTensors | None:
    """The head's tensors among `tensor_names`, by the family's layout."""
    if family.layout in ("none", "assistant"):
        return None
    return find_head_names(family.layout, num_trunk_layers(config), tensor_names)


def config_value(config: Mapping[str, Any], dotted: str) -> Any:
    """The value at a dotted key, None when any part of it is absent."""
    value: Any = config
    for key in dotted.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def unknown_mtp_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Config keys, at both levels, that speak of MTP in a way mtplx does not know."""
    found: list[str] = []
    for prefix in _LEVELS:
        level = config_value(config, prefix.rstrip(".")) if prefix else config
        if isinstance(level, Mapping):
            found += [
                f"{prefix}{key}"
                for key in level
                if ("mtp" in key.lower() or "nextn" in key.lower())
                and (key not in _UNDERSTOOD_KEYS or not _readable(key, level[key]))
            ]
    return tuple(found)


_LEVELS = ("", "text_config.")


def _readable(key: str, value: Any) -> bool:
    """Whether a known key has a value of the kind it should have."""
    if key in _COUNT_KEYS:
        return value is None or (type(value) is int and value >= 0)
    if key in _PATTERN_KEYS:
        return value is None or isinstance(value, str | list)
    return True
