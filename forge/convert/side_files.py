"""The small files of an artifact: its config.json, and what belongs to tokenizer and texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.files import write_bytes, write_json
from mtplx.contracts.identity import FileRecord, identity_files, record_file
from mtplx.contracts.inspection import Inspection
from mtplx.contracts.paths import resolve_inside
from mtplx.forge.convert.body import plan_body
from mtplx.forge.convert.published import is_mlx_quantized
from mtplx.forge.convert.trunk import is_quantized_by
from mtplx.forge.recipe import Recipe
from mtplx.runtime.loading.trunk_weights import stock_model_type

_LICENSES = ("LICENSE*", "LICENCE*", "NOTICE*")
# The tower is left out, so nothing may say that the model takes images or sound.
_OTHER_SENSES = ("vision_", "image_", "video_", "audio_")
_QUANTIZATION = ("quantization", "quantization_config")
# `_name_or_path` may hold a path of its author's machine; `auto_map` names code that is not copied.
_LEFT_OUT = ("_name_or_path", "auto_map")
_DTYPES = ("dtype", "torch_dtype")


def copy_side_files(
    folder: Path, inspection: Inspection, recipe: Recipe, out: Path
) -> dict[str, FileRecord]:
    """Write config.json and copy tokenizer, templates, generation_config.json and licences of `folder`.

    The files are copies of the content, never links; code is not copied, nor what concerns vision
    or the packing of the source. Returns the records by name.

    Raises:
        TensorFileError: a file is a link that leads out of the folder.
        CorruptModelError: a file cannot be read.
        ResourceError: the disk is full.
    """
    inspection = replace(inspection, path=folder)
    write_json(out / "config.json", artifact_config(inspection, recipe))
    names = ["config.json"]
    for name in _copied(folder):
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, _content(folder, name))
        names.append(name)
    return {name: record_file(out / name) for name in names}


def artifact_config(inspection: Inspection, recipe: Recipe) -> dict[str, Any]:
    """config.json of the artifact, keys sorted: text only, with the quantisation of its own weights.

    What announces MTP layers stays as the source has it.
    """
    config = _text_only(inspection.config)
    family = inspection.family
    model_type = config.get("model_type") or (family.model_types[0] if family else "")
    config["model_type"] = stock_model_type(str(model_type))
    if not is_mlx_quantized(inspection):
        _set_types(config, inspection, recipe)
    return dict(sorted(config.items()))


def _text_only(config: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: value
        for key, value in config.items()
        if not key.startswith(_OTHER_SENSES) and key not in _LEFT_OUT
    }
    if isinstance(text := kept.get("text_config"), dict):
        kept["text_config"] = {k: v for k, v in text.items() if k not in _LEFT_OUT}
    return kept


def _set_types(config: dict[str, Any], inspection: Inspection, recipe: Recipe) -> None:
    """The packing of the source goes, that of the artifact comes, and the type of the rest."""
    text = config.get("text_config")
    levels = [config, text] if isinstance(text, dict) else [config]
    for level in levels:
        for key in _QUANTIZATION:
            level.pop(key, None)
    if is_quantized_by(recipe, inspection):
        block = plan_body(inspection, recipe).block
        config["quantization"] = config["quantization_config"] = block
    elif inspection.quantization is None:
        return
    for level in levels:
        level.update({key: recipe.body_dtype for key in _DTYPES if key in level})


def _copied(folder: Path) -> Iterator[str]:
    """Names of what is copied, without config.json."""
    roles = {"tokenizer", "template"}
    found = {name for role, name in identity_files(folder, ()) if role in roles}
    found |= {path.name for glob in _LICENSES for path in folder.glob(glob) if path.is_file()}
    if (folder / "generation_config.json").is_file():
        found.add("generation_config.json")
    yield from sorted(found)


def _content(folder: Path, name: str) -> bytes:
    try:
        return resolve_inside(folder, name).read_bytes()
    except OSError as cause:
        raise CorruptModelError(
            f"{folder / name} cannot be read: {cause.strerror or cause}.",
            hint="Check the permissions of the file, or fetch it again.",
        ) from cause
