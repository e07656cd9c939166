"""Ways to damage a model folder, each changing exactly one thing."""

from __future__ import annotations

import json
import math
import re
import struct
from typing import TYPE_CHECKING, Any

from tests.support.tensorfile import (
    ITEM_SIZE,
    Tensor,
    read_header,
    read_tensors,
    write_header,
    write_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

INDEX = "model.safetensors.index.json"

_NAN = {"BF16": b"\xc0\x7f", "F32": struct.pack("<f", math.nan), "F16": b"\x00\x7e"}


def shard_files(folder: Path) -> list[Path]:
    """The weight files of a folder's trunk, in order."""
    return sorted(folder.glob("model*.safetensors"))


def read_json(path: Path) -> Any:
    """A JSON file's value."""
    return json.loads(path.read_text())


def edit_json(path: Path, changes: Mapping[str, Any]) -> None:
    """Set dotted keys; a value of ``...`` removes the key."""
    root = read_json(path)
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        part = root
        for key in parents:
            part = part[key]
        if value is ...:
            del part[last]
        else:
            part[last] = value
    path.write_text(json.dumps(root, indent=2))


def edit_weight_map(folder: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Replace the index's map of tensor names to files."""
    index = read_json(folder / INDEX)
    index["weight_map"] = change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index, indent=2))


def drop_shard(folder: Path, number: int = 2) -> Path:
    """Delete shard ``number`` (from 1) and return the path it had."""
    path = shard_files(folder)[number - 1]
    path.unlink()
    return path


def rename_shard(folder: Path, number: int = 2, name: str = "weights-b.safetensors") -> Path:
    """Rename shard ``number`` without telling the index; returns the old path."""
    path = shard_files(folder)[number - 1]
    path.rename(folder / name)
    return path


def truncate(path: Path, drop: int = 10) -> None:
    """Cut the last ``drop`` bytes off a file, as an interrupted download does."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - drop])


def append_bytes(path: Path, count: int = 16) -> None:
    """Put bytes behind the last tensor."""
    path.write_bytes(path.read_bytes() + b"\0" * count)


def claim_header_size(path: Path, size: int) -> None:
    """Overwrite the eight bytes that announce the header's length."""
    path.write_bytes(size.to_bytes(8, "little") + path.read_bytes()[8:])


def edit_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite a file's header in place; its data stay as they are."""
    header, data = read_header(path)
    change(header)
    write_header(path, header, data)


def _by_offset(header: Mapping[str, Any]) -> list[str]:
    names = [name for name in header if name != "__metadata__"]
    return sorted(names, key=lambda name: int(header[name]["data_offsets"][0]))


def overlap_tensors(path: Path) -> tuple[str, str]:
    """Let the second tensor start one item inside the first; returns both names."""
    header, data = read_header(path)
    first, second = _by_offset(header)[:2]
    shift = ITEM_SIZE[header[first]["dtype"]]
    header[second]["data_offsets"] = [n - shift for n in header[second]["data_offsets"]]
    write_header(path, header, data)
    return first, second


def leave_hole(path: Path, size: int = 16) -> str:
    """Put ``size`` bytes that belong to no tensor before the second one; returns its name."""
    header, data = read_header(path)
    _, second, *later = _by_offset(header)
    start = int(header[second]["data_offsets"][0])
    for name in (second, *later):
        header[name]["data_offsets"] = [n + size for n in header[name]["data_offsets"]]
    write_header(path, header, data[:start] + b"\0" * size + data[start:])
    return second


def claim_shape(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Give a tensor a shape that its bytes do not have."""
    edit_header(path, lambda header: header[name].update(shape=list(shape)))


def claim_dtype(path: Path, name: str, dtype: str) -> None:
    """Give a tensor a dtype that its bytes do not have."""
    edit_header(path, lambda header: header[name].update(dtype=dtype))


def add_stray_shard(folder: Path, name: str = "model.safetensors") -> Path:
    """Add a weight file nobody lists, with a tensor of zeros under a trunk name."""
    taken = next(iter(read_tensors(shard_files(folder)[0])))
    write_tensors(folder / name, {taken: Tensor("U32", (4, 4), bytes(64))}, made_by="mlx")
    return folder / name


def remove_tensors(folder: Path, unwanted: Callable[[str], bool]) -> list[str]:
    """Take tensors out of every weight file and out of the index; returns their names."""
    removed: list[str] = []
    for path in sorted(folder.rglob("*.safetensors")):
        tensors = read_tensors(path)
        gone = [name for name in tensors if unwanted(name)]
        if gone:
            write_tensors(path, {n: t for n, t in tensors.items() if n not in gone})
            removed += gone
    if (folder / INDEX).exists():
        edit_weight_map(folder, lambda names: {n: f for n, f in names.items() if n not in removed})
    return removed


def find_tensor(folder: Path, pattern: str) -> tuple[Path, str]:
    """The file and full name of the first tensor matching a regular expression.

    Raises:
        LookupError: when no tensor matches.
    """
    for path in sorted(folder.rglob("*.safetensors")):
        for name in read_header(path)[0]:
            if re.search(pattern, name):
                return path, name
    raise LookupError(f"no tensor of {folder} matches {pattern!r}")


def replace_tensor(path: Path, name: str, tensor: Tensor) -> None:
    """Put another tensor under an existing name."""
    write_tensors(path, {**read_tensors(path), name: tensor})


def poison_with_nan(folder: Path, pattern: str) -> str:
    """Make every value of the first matching floating-point tensor NaN; returns its name."""
    path, name = find_tensor(folder, pattern)
    old = read_tensors(path)[name]
    one = _NAN[old.dtype]
    replace_tensor(path, name, Tensor(old.dtype, old.shape, one * (len(old.data) // len(one))))
    return name
