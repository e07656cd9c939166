"""The checks of an inspection: each takes values, and returns what it found or raises."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from mtplx.contracts import families
from mtplx.contracts.errors import (
    CorruptModelError,
    HeadWeightsError,
    ModelNotFoundError,
    NotAModelError,
    UnsupportedModelError,
)
from mtplx.contracts.family import Family
from mtplx.contracts.head_names import HeadTensors, layer_number, looks_like_mtp, missing_parts
from mtplx.contracts.json_object import read_object
from mtplx.contracts.packed_tensors import plain_name
from mtplx.contracts.tensor_header import shortened
from mtplx.contracts.tensors import TensorIndex

_VISION_PREFIXES = (
    "vision_tower.",
    "vision_model.",
    "visual.",
    "multi_modal_projector.",
    "mm_projector.",
    "audio_tower.",
)
_WRAPPERS = ("", "model.", "language_model.")
_VISION = tuple(wrapper + prefix for wrapper in _WRAPPERS for prefix in _VISION_PREFIXES)
_CONTEXT_KEYS = ("max_position_embeddings", "max_sequence_length", "seq_length", "n_positions")


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of `folder`. Raises ModelNotFoundError or NotAModelError when there is none."""
    if not folder.exists():
        raise ModelNotFoundError(
            f"{folder} does not exist.", hint="Give the path of a model folder."
        )
    if not folder.is_dir():
        raise NotAModelError(
            f"{folder} is a file; expected a folder with config.json and *.safetensors.",
            hint="GGUF files are not read." if folder.suffix == ".gguf" else "Give its folder.",
        )
    if not (folder / "config.json").is_file():
        raise NotAModelError(f"{folder} has no config.json.", hint=_folder_hint(folder))
    return read_object(folder / "config.json")


def _folder_hint(folder: Path) -> str:
    if (folder / "snapshots").is_dir():
        return "This is a repository of the Hugging Face cache; give a folder in its `snapshots`."
    if (folder / "adapter_config.json").is_file():
        return "This is an adapter; merge it into its base model first."
    if next(folder.glob("*.gguf"), None) is not None:
        return "GGUF files are not read; get the safetensors release of the model."
    return "Give the folder that holds config.json and the *.safetensors files."


def recognise(config: dict[str, Any]) -> Family:
    """The family of a model that runs without code from its repository.

    Raises UnsupportedModelError for unknown types, for configs that ask to run code, and for
    variants of a family that nobody supports.
    """
    for key in ("model_file", "trust_remote_code"):
        if config.get(key):
            raise UnsupportedModelError(
                f"config.json asks to run code from the repository ({key}: {_shown(config[key])}).",
                hint="mtplx never does. Use a release in the standard layout of its family.",
            )
    family = families.find_family(config)
    if family is None:
        raise _unknown_family(config)
    model_type = config.get("model_type")
    if model_type is not None and model_type not in family.model_types:
        raise UnsupportedModelError(
            f"config.json has the unknown model_type {_shown(model_type)} around {family.title}.",
            hint=f"Known for it: {', '.join(family.model_types)}.",
        )
    for key in family.refused_keys:
        if families.config_value(config, key):
            raise UnsupportedModelError(
                f"{family.title} with {key} set is not supported.",
                hint="Use a release of the family without it.",
            )
    return family


def config_warnings(config: dict[str, Any], family: Family) -> list[str]:
    """Oddities of a config that do not keep the model from running."""
    warnings: list[str] = []
    if "auto_map" in config:
        warnings.append("The repository brings code (auto_map); it is not run.")
    if config.get("model_type") is None:
        warnings.append(
            f"config.json has no model_type; taken for {family.title} by its architectures."
        )
    if keys := families.unknown_mtp_keys(config):
        warnings.append(counted(keys, "config keys look like MTP and are not understood"))
    return warnings


def context_length(config: dict[str, Any]) -> int | None:
    """Positions the model was made for."""
    text = families.text_config(config)
    return next((value for key in _CONTEXT_KEYS if (value := positive(text.get(key)))), None)


def head_warnings(
    declared: int | None, head: HeadTensors | None, index: TensorIndex, num_layers: int
) -> list[str]:
    """Tensors that look like a head and are not part of it, and counts that disagree."""
    warnings: list[str] = []
    used = head.names if head else {}
    odd = [
        name
        for name, tensor in index.tensors.items()
        if name not in used and (tensor.file in index.sidecars or looks_like_mtp(name, num_layers))
    ]
    if odd:
        warnings.append(counted(sorted(odd), "tensors look like MTP and are not understood"))
    if head and declared and declared != head.num_layers:
        warnings.append(
            f"config.json announces {declared} MTP layers, the weights hold {head.num_layers}."
        )
    return warnings


def check_head(family: Family, head: HeadTensors | None) -> None:
    """Raise HeadWeightsError when essential tensors of a head are absent."""
    if head and (missing := missing_parts(family, head)):
        raise HeadWeightsError(
            f"The MTP head under '{head.prefix}' is incomplete; missing: {', '.join(missing)}.",
            hint="Fetch the model again, or get a release with the whole head.",
        )


def check_trunk(
    family: Family, num_layers: int, index: TensorIndex, head: HeadTensors | None
) -> None:
    """Every layer of a family we know well must have tensors, and tokens an embedding.

    An index can be absent or stale, so it alone cannot tell that a model is whole.
    """
    if not family.runnable:
        return
    used = head.names if head else {}
    trunk = [name for name in index.tensors if name not in used]
    present = {layer_number(name) for name in trunk}
    absent = list(islice((k for k in range(num_layers) if k not in present), 9))
    if absent:
        shown = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
        raise CorruptModelError(
            f"config.json announces {num_layers} layers, and there are no tensors of layers "
            f"{shown} in {', '.join(index.files[:4])}.",
            hint=f"Incomplete download? Fetch it again: `hf download REPO --local-dir "
            f"{index.folder}`.",
        )
    if not any(plain_name(name).endswith("embed_tokens.weight") for name in trunk):
        raise CorruptModelError(
            f"{index.folder} has no embed_tokens.weight.", hint="Fetch the model again."
        )


def find_vision(folder: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """The vision or audio tower among tensor `names`: tensors (count), prefix, preprocessor."""
    tower = [name for name in names if is_vision(name)]
    if not tower:
        return None
    return {
        "tensors": len(tower),
        "prefix": next(prefix for prefix in _VISION if tower[0].startswith(prefix)),
        "preprocessor": (folder / "preprocessor_config.json").is_file(),
    }


def is_vision(name: str) -> bool:
    """Whether a tensor belongs to a vision or audio tower."""
    return name.startswith(_VISION)


def positive(value: Any) -> int | None:
    """`value` when it is a positive integer."""
    return value if type(value) is int and value > 0 else None


def counted(names: Iterable[str], what: str, limit: int = 8) -> str:
    """A sentence that counts `names` and shows the first of them."""
    listed = list(names)
    shown = ", ".join(shortened(name) for name in listed[:limit])
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return f"{len(listed)} {what}: {shown}{more}."


def _shown(value: Any) -> str:
    return shortened(ascii(value))


def _unknown_family(config: dict[str, Any]) -> UnsupportedModelError:
    model_type = config.get("model_type")
    with_head = [t for f in families.FAMILIES if f.runnable for t in f.model_types]
    plain = [t for f in families.FAMILIES if f.has_trunk and not f.runnable for t in f.model_types]
    return UnsupportedModelError(
        f"config.json has the unknown model_type {_shown(model_type)} "
        f"(architectures {_shown(config.get('architectures'))}).",
        hint=f"Known with MTP: {', '.join(with_head)}. Known without: {', '.join(plain)}.",
    )
