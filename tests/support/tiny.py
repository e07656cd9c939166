"""Tiny random-weight model folders in the exact published layout of their family."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any, Literal

from tests.support.tensorfile import Tensor, encode, read_values, write_tensors
from tests.support.tiny_families import (
    HEAD_PREFIX,
    NEXTN,
    ZERO_CENTRED,
    Config,
    FamilyName,
    declare_head,
    head_shapes,
    make_config,
    text_part,
    trunk_shapes,
)
from tests.support.tiny_layout import (
    Experts,
    NormConvention,
    add_prefix,
    compress_fp8,
    copy_vocabulary,
    declare_fp8,
    encode_all,
    number_from_zero,
    spell_experts,
    store_norms,
)
from tests.support.tiny_packed import BLOCKS, pack_all
from tests.support.tiny_tokenizer import write_generation_config, write_json, write_tokenizer
from tests.support.tiny_weights import draw_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tests.support.tiny_layout import Values
    from tests.support.tiny_packed import Pack

Layout = Literal["hf", "mlx"]

#: `config_overrides` of a Llama trunk with one sliding-window layer of 8 and one full layer.
WINDOW: Config = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}


def build_tiny(
    folder: Path,
    family: FamilyName,
    *,
    layers: int = 2,
    vocab: int = 64,
    hidden: int = 32,
    seed: int = 0,
    dtype: Literal["BF16", "F32"] = "BF16",
    shards: int = 2,
    head: bool = True,
    declared: bool = True,
    heads: int = 1,
    tokenizer: bool = True,
    chat_template: bool | Literal["jinja"] = True,
    fused_experts: bool = False,
    stacked_experts: bool | None = None,
    prefix: str | None = None,
    layout: Layout = "hf",
    quantize: Mapping[str, Any] | None = None,
    fp8: bool = False,
    pack: Pack | None = None,
    norm_convention: NormConvention | None = None,
    sidecar: str | None = None,
    single_file: bool = False,
    config_overrides: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model folder and return it.

    ``head=False`` leaves the head's tensors out, ``declared=False`` its config field (Qwen3-Next
    publishes none anyway). ``heads`` is the number of MTP layers. ``prefix`` replaces the head's
    published prefix, trailing dot included; under one with `mtp` in it MTP layers count from 0.
    ``fused_experts`` and ``stacked_experts`` spell the head's experts as `experts.gate_up_proj`
    or, the habit of MLX packs, as `switch_mlp.*`; a trunk keeps its family's spelling.
    ``norm_convention`` concerns the head's norms of the zero-centred families: published folders
    are raw and MLX packs final unless it says otherwise. ``quantize`` holds the fields of
    `tiny_mlx.Quantize`; take a ``hidden`` that is twice its group size or more. ``pack`` stores
    the large matrices as other tools do (`tiny_packed`). ``sidecar`` puts the head in a file of
    its own, which no index lists. ``single_file`` writes one `model.safetensors` and no index.
    ``config_overrides`` replace keys where they are, `...` removes one. The same seed gives the
    same model in every layout.

    Raises:
        ValueError: for options which exclude each other.
    """
    if quantize is not None and (layout != "mlx" or fp8):
        raise ValueError("quantize needs layout='mlx' and fp8=False")
    if (fp8 or pack) and layout != "hf":
        raise ValueError("fp8 and pack need layout='hf'")
    if fp8 and pack:
        raise ValueError("fp8 and pack exclude each other")
    folder.mkdir(parents=True, exist_ok=True)
    config = make_config(family, layers, vocab, hidden)
    if declared:
        declare_head(config, family, heads)
    _override(config, config_overrides or {})

    trunk = draw_all(trunk_shapes(family, config), seed, dtype)
    head_values = _head_values(family, config, heads, seed, dtype) if head else {}
    copy_vocabulary(trunk, head_values)
    if family in ZERO_CENTRED:
        trunk = store_norms(trunk, "raw")
        convention = norm_convention or ("raw" if layout == "hf" else "final")
        head_values = store_norms(head_values, convention)
    stacked = layout == "mlx" if stacked_experts is None else stacked_experts
    experts: Experts = "stacked" if stacked else "separate"
    head_values = spell_experts(head_values, "fused" if fused_experts else experts)
    head_values = _place_head(family, config, head_values, prefix)
    if family == "qwen3_5_moe" and not (fp8 or pack):
        trunk = spell_experts(trunk, "fused")

    if fp8:
        declare_fp8(config)
        trunk_tensors, head_tensors = _write_compressed(
            folder, trunk, head_values, lambda values: compress_fp8(values, dtype)
        )
    elif pack is not None:
        config["quantization_config"] = BLOCKS[pack]
        trunk_tensors, head_tensors = _write_compressed(
            folder, trunk, head_values, lambda values: pack_all(values, dtype, pack)
        )
    elif layout == "mlx":
        trunk_tensors, head_tensors = _as_mlx(config, trunk, head_values, dtype, quantize)
    else:
        trunk_tensors, head_tensors = encode_all(trunk, dtype), encode_all(head_values, dtype)

    made_by = "mlx" if layout == "mlx" else "pt"
    if sidecar is not None and head_tensors:
        write_tensors(folder / sidecar, head_tensors, made_by=made_by)
        head_tensors = {}
    _write_shards(folder, {**trunk_tensors, **head_tensors}, 0 if single_file else shards, made_by)
    write_json(folder / "config.json", config)
    size = text_part(config)["vocab_size"]
    write_generation_config(folder, size)
    if tokenizer:
        write_tokenizer(folder, size, chat_template=chat_template)
    return folder


def fp8_truth(folder: Path) -> dict[str, NDArray[np.float32]]:
    """What the tensors of a folder built with ``fp8=True`` or ``pack`` stand for, in float32."""
    return read_values(_truth_path(folder))


def unpacked_copy(folder: Path) -> Path:
    """The same model as plain float32 weights, in a folder beside the packed one."""
    copy = folder.parent / f"{folder.name}-plain"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.safetensors*"))
    shutil.copy(_truth_path(folder), copy / "model.safetensors")
    config = json.loads((copy / "config.json").read_text())
    del config["quantization_config"]
    write_json(copy / "config.json", config)
    return copy


def _truth_path(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.truth.safetensors"


def _override(config: Config, overrides: Mapping[str, Any]) -> None:
    """Replace keys wherever they are; new keys go to the top level."""
    text = text_part(config)
    for key, value in overrides.items():
        holders = [part for part in (config, text) if key in part] or [config]
        if key == "model_type":
            holders = [config]
        for part in holders:
            if value is ...:
                part.pop(key, None)
            elif isinstance(value, dict) and isinstance(part.get(key), dict):
                part[key].update(value)
            else:
                part[key] = value


def _head_values(family: FamilyName, config: Config, heads: int, seed: int, dtype: str) -> Values:
    """Head values under names without prefix; the layer numbers of the trunk do not matter."""
    first = text_part(config)["num_hidden_layers"]
    shapes = head_shapes(family, config, heads)
    if family not in NEXTN:
        return draw_all(shapes, seed, dtype)

    def relative(name: str) -> str:
        number, rest = name.split(".", 1)
        return f"nextn.{int(number) - first}.{rest}"

    drawn = draw_all({relative(name): shape for name, shape in shapes.items()}, seed, dtype)
    return {name: drawn[relative(name)] for name in shapes}


def _place_head(family: FamilyName, config: Config, values: Values, prefix: str | None) -> Values:
    """Names as the checkpoint has them."""
    if prefix is None:
        return add_prefix(values, HEAD_PREFIX.get(family, ""))
    if family in NEXTN and "mtp" in prefix:
        values = number_from_zero(values, text_part(config)["num_hidden_layers"])
    return add_prefix(values, prefix)


def _write_compressed(
    folder: Path,
    trunk: Values,
    head: Values,
    compress: Callable[[Values], tuple[dict[str, Tensor], Values]],
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    trunk_tensors, truth = compress(trunk)
    head_tensors, head_truth = compress(head)
    values = {**truth, **head_truth}
    write_tensors(_truth_path(folder), {name: encode(v, "F32") for name, v in values.items()})
    return trunk_tensors, head_tensors


def _as_mlx(
    config: Config, trunk: Values, head: Values, dtype: str, quantize: Mapping[str, Any] | None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    from tests.support.tiny_mlx import Quantize, quantize_head, save_as_mlx

    how = None if quantize is None else Quantize(**quantize)
    trunk_tensors, block = save_as_mlx(config, encode_all(trunk, dtype), how)
    head_tensors = encode_all(head, dtype)
    if how is not None and block is not None:
        head_tensors, entries = quantize_head(head_tensors, how)
        config["quantization"] = config["quantization_config"] = {**block, **entries}
    return trunk_tensors, head_tensors


def _write_shards(folder: Path, tensors: dict[str, Tensor], shards: int, made_by: str) -> None:
    """Shards with an index, in the order of the tensors; ``shards=0`` is one file without index."""
    if shards == 0:
        write_tensors(folder / "model.safetensors", tensors, made_by=made_by)
        return
    names = list(tensors)
    size = math.ceil(len(names) / shards)
    where: dict[str, str] = {}
    for i in range(shards):
        part = names[i * size : (i + 1) * size]
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        write_tensors(folder / file, {name: tensors[name] for name in part}, made_by=made_by)
        where |= dict.fromkeys(part, file)
    total = sum(len(tensor.data) for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    write_json(folder / "model.safetensors.index.json", index)
