"""The body's weight files: planned from shapes, written one by one, left alone where they are done."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from mtplx.contracts.errors import TensorFileError
from mtplx.contracts.files import write_json
from mtplx.contracts.head_names import layer_number
from mtplx.contracts.identity import FileRecord, header_sha256, record_file
from mtplx.contracts.tensors import INDEX_NAME, SINGLE_NAME
from mtplx.forge.convert.writer import header_bytes, write_tensors
from mtplx.runtime.loading.arrays import Weights


class Shard(NamedTuple):
    """One weight file and the tensors in it."""

    file: str
    names: tuple[str, ...]


def plan_shards(sizes: Mapping[str, int], limit: int) -> list[Shard]:
    """Files of at most `limit` bytes of tensors, layer after layer; `sizes` are bytes by name.

    A tensor that is larger than the limit gets a file of its own.
    """
    groups: list[list[str]] = [[]]
    filled = 0
    for name in sorted(sizes, key=_place):
        if groups[-1] and filled + sizes[name] > limit:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += sizes[name]
    if len(groups) == 1:
        return [Shard(SINGLE_NAME, tuple(groups[0]))]
    return [
        Shard(f"model-{number:05}-of-{len(groups):05}.safetensors", tuple(names))
        for number, names in enumerate(groups, start=1)
    ]


def write_shards(
    out: Path,
    tensors: Weights,
    *,
    limit: int,
    made_by: str,
    finished: Mapping[str, FileRecord],
    on_shard: Callable[[str, FileRecord], None],
    on_progress: Callable[[str, float], None],
) -> dict[str, FileRecord]:
    """Write `tensors`, which are emptied, and the index that several files need.

    A file in `finished` whose size and header are those recorded and planned is left as it is, and
    its tensors are not evaluated. `on_shard` is called after each file, written or left.
    """
    sizes = {name: array.nbytes for name, array in tensors.items()}
    shards = plan_shards(sizes, limit)
    total, done = max(1, sum(sizes.values())), 0
    metadata = {"format": made_by}
    records: dict[str, FileRecord] = {}

    for shard in shards:
        part = {name: tensors.pop(name) for name in shard.names}
        label = f"writing {shard.file}"

        def advance(count: int, label: str = label) -> None:
            nonlocal done
            done += count
            on_progress(label, done / total)

        record = finished.get(shard.file)
        if record is not None and _is_intact(out / shard.file, record, part, metadata):
            part.clear()
            advance(sum(sizes[name] for name in shard.names))
        else:
            record = write_tensors(out / shard.file, part, metadata=metadata, on_bytes=advance)
        records[shard.file] = record
        on_shard(shard.file, record)
    if len(shards) > 1:
        records[INDEX_NAME] = _write_index(out, shards, sum(sizes.values()))
    return records


def remove_partial(out: Path) -> None:
    """Remove what a killed run left behind below `out`; an artifact has no hidden files."""
    for path in out.rglob(".*"):
        if path.is_file() or path.is_symlink():
            path.unlink()


def _place(name: str) -> tuple[int, str]:
    """Embedding first, then the layers by number, then the rest."""
    number = layer_number(name)
    if number is not None:
        return number, name
    return -1 if ".embed_tokens." in f".{name}" else 2**31, name


def _is_intact(
    path: Path, record: FileRecord, tensors: Weights, metadata: Mapping[str, str]
) -> bool:
    """Whether the file is the recorded one, and the recorded one holds just these tensors."""
    planned = hashlib.sha256(header_bytes(tensors, metadata)).hexdigest()
    if planned != record.header_sha256 or not path.is_file() or path.stat().st_size != record.size:
        return False
    try:
        return header_sha256(path) == planned
    except TensorFileError:
        return False


def _write_index(out: Path, shards: list[Shard], total_size: int) -> FileRecord:
    places = {name: shard.file for shard in shards for name in shard.names}
    write_json(
        out / INDEX_NAME,
        {"metadata": {"total_size": total_size}, "weight_map": dict(sorted(places.items()))},
    )
    return record_file(out / INDEX_NAME)
