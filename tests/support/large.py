"""Model folders of some hundred MiB, written shard by shard, whose values do not matter."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from tests.support import fp8
from tests.support.tensorfile import ITEM_SIZE, Tensor, write_tensors
from tests.support.tiny_families import (
    HEAD_PREFIX,
    Config,
    FamilyName,
    Shapes,
    declare_head,
    head_shapes,
    make_config,
    text_part,
    trunk_shapes,
)
from tests.support.tiny_packed import BLOCKS
from tests.support.tiny_weights import is_full_linear, stored_dtype

if TYPE_CHECKING:
    from pathlib import Path

Packing = Literal["none", "fp8", "awq", "gptq"]

_GROUP = 128
_VOCAB = 8192
# One in every floating type; the words and orders of packed weights are zeros.
_ONES = {
    "BF16": b"\x80\x3f",
    "F16": b"\x00\x3c",
    "F32": b"\x00\x00\x80\x3f",
    "F8_E4M3": b"\x38",
    "I32": bytes(4),
}


class _Entry(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_SIZE[self.dtype]


def write_large(
    folder: Path,
    family: FamilyName,
    *,
    hidden: int,
    layers: int,
    shard: int,
    packing: Packing = "none",
) -> None:
    """A folder with trunk and head in files of at most `shard` bytes of tensors, with an index.

    Qwen's experts are fused as published, the others' are one by one.
    """
    folder.mkdir()
    config = make_config(family, layers, _VOCAB, hidden)
    declare_head(config, family, 1)
    if packing == "fp8":
        config["quantization_config"] = fp8.QUANTIZATION_CONFIG
    elif packing != "none":
        config["quantization_config"] = {**BLOCKS[packing], "group_size": _GROUP}
    (folder / "config.json").write_text(json.dumps(config))
    files = _files(list(_entries(family, config, packing)), shard)
    where: dict[str, str] = {}
    for number, entries in enumerate(files, start=1):
        file = f"model-{number:05}-of-{len(files):05}.safetensors"
        tensors = {e.name: Tensor(e.dtype, e.shape, _filled(e)) for e in entries}
        write_tensors(folder / file, tensors)
        where |= dict.fromkeys(tensors, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def layer_bytes(folder: Path) -> int:
    """Bytes of the last layer of the trunk as bfloat16."""
    config = json.loads((folder / "config.json").read_text())
    family: FamilyName = config["model_type"]
    at = f".layers.{text_part(config)['num_hidden_layers'] - 1}."
    shapes = trunk_shapes(family, config)
    return 2 * sum(math.prod(shape) for name, shape in shapes.items() if at in name)


def model_bytes(folder: Path) -> int:
    """Bytes of the whole trunk as bfloat16."""
    config = json.loads((folder / "config.json").read_text())
    family: FamilyName = config["model_type"]
    return 2 * sum(map(math.prod, trunk_shapes(family, config).values()))


def _entries(family: FamilyName, config: Config, packing: Packing) -> Iterator[_Entry]:
    shapes = trunk_shapes(family, config)
    if family == "qwen3_5_moe":
        shapes = _fused(shapes)
    head = head_shapes(family, config, 1)
    shapes |= {f"{HEAD_PREFIX[family]}{name}": shape for name, shape in head.items()}
    for name, shape in shapes.items():
        if packing != "none" and len(shape) == 2 and is_full_linear(name):
            yield from _packed(name, (shape[0], shape[1]), packing)
        else:
            yield _Entry(name, stored_dtype(name, "BF16"), shape)


def _fused(shapes: Shapes) -> Shapes:
    """Experts of a layer as `experts.gate_up_proj` and `experts.down_proj`."""
    out: Shapes = {}
    num_experts = 1 + max(
        int(n.split(".experts.")[1].split(".")[0]) for n in shapes if _is_expert(n)
    )
    for name, shape in shapes.items():
        if not _is_expert(name):
            out[name] = shape
            continue
        stem, rest = name.split(".experts.")
        if rest == "0.up_proj.weight":
            out[f"{stem}.experts.gate_up_proj"] = (num_experts, 2 * shape[0], shape[1])
        elif rest == "0.down_proj.weight":
            out[f"{stem}.experts.down_proj"] = (num_experts, *shape)
    return out


def _is_expert(name: str) -> bool:
    return ".experts." in name


def _packed(name: str, shape: tuple[int, int], packing: Packing) -> Iterator[_Entry]:
    outputs, inputs = shape
    if packing == "fp8":
        yield _Entry(name, "F8_E4M3", shape)
        yield _Entry(f"{name}_scale_inv", "F32", (-(-outputs // 128), -(-inputs // 128)))
        return
    stem = name.removesuffix(".weight")
    groups = inputs // _GROUP
    words = (inputs, outputs // 8) if packing == "awq" else (inputs // 8, outputs)
    yield _Entry(f"{stem}.qweight", "I32", words)
    yield _Entry(f"{stem}.qzeros", "I32", (groups, outputs // 8))
    yield _Entry(f"{stem}.scales", "F16", (groups, outputs))
    if packing == "gptq":
        yield _Entry(f"{stem}.g_idx", "I32", (inputs,))


def _files(entries: list[_Entry], limit: int) -> list[list[_Entry]]:
    files: list[list[_Entry]] = [[]]
    for entry in entries:
        if files[-1] and sum(e.nbytes for e in files[-1]) + entry.nbytes > limit:
            files.append([])
        files[-1].append(entry)
    return files


def _filled(entry: _Entry) -> bytes:
    return _ONES[entry.dtype] * math.prod(entry.shape)
