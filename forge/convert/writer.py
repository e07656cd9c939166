"""Safetensors files written tensor by tensor, so that no more than one is in memory.

The safetensors library and `mx.save_safetensors` take whole files of evaluated arrays. A lazy
array knows its shape and type, so the header can be written before anything is read.
Format: huggingface/safetensors `README.md`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import mlx.core as mx

from mtplx.contracts.errors import InternalError
from mtplx.contracts.files import sync_folder, write_error
from mtplx.contracts.identity import FileRecord

_DTYPES = {
    mx.bool_: "BOOL",
    mx.uint8: "U8",
    mx.int8: "I8",
    mx.uint16: "U16",
    mx.int16: "I16",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.uint32: "U32",
    mx.int32: "I32",
    mx.float32: "F32",
    mx.uint64: "U64",
    mx.int64: "I64",
    mx.float64: "F64",
    mx.complex64: "C64",
}
_ALIGNMENT = 8


def write_tensors(
    path: Path,
    tensors: MutableMapping[str, mx.array],
    *,
    metadata: Mapping[str, str],
    on_bytes: Callable[[int], None] | None = None,
) -> FileRecord:
    """Write `tensors` to `path` and return what was written.

    `tensors` is emptied on the way: whoever keeps an evaluated array keeps its memory. Wide types
    come first and names are sorted within a width, so every tensor is aligned and the same tensors
    make the same bytes. The file grows under the name `.NAME.partial` beside `path` and is renamed
    when it is complete and on the disk. `on_bytes` gets the size of each tensor written.

    Raises:
        ResourceError: the disk is full.
        UsageError: the folder cannot be written.
    """
    header = header_bytes(tensors, metadata)
    digest = hashlib.sha256(header)
    record_header, size = digest.hexdigest(), len(header)
    with _replacing(path) as file:
        file.write(header)
        for name in _order(tensors):
            data = _raw(tensors.pop(name))
            file.write(data)
            digest.update(data)
            size += data.nbytes
            if on_bytes is not None:
                on_bytes(data.nbytes)
            del data
            # Freed buffers would be kept for reuse, and the next tensor has another size.
            mx.clear_cache()
    return FileRecord(size, digest.hexdigest(), record_header)


def header_bytes(tensors: Mapping[str, mx.array], metadata: Mapping[str, str]) -> bytes:
    """The length and the JSON header of a file of `tensors`; evaluates nothing."""
    entries: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    position = 0
    for name in _order(tensors):
        array = tensors[name]
        entries[name] = {
            "dtype": _dtype(name, array),
            "shape": list(array.shape),
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _order(tensors: Mapping[str, mx.array]) -> list[str]:
    return sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))


def _dtype(name: str, array: mx.array) -> str:
    if array.dtype not in _DTYPES:
        raise InternalError(f"{name} has the type {array.dtype}, which safetensors has no name for")
    return _DTYPES[array.dtype]


def _raw(array: mx.array) -> memoryview:
    """The array's bytes in row-major order; they live as long as the view does."""
    flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
    mx.eval(flat)
    return memoryview(flat)  # type: ignore[arg-type]


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` at the end, or leaves no trace."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as cause:
        raise write_error(path, cause) from cause
    finally:
        partial.unlink(missing_ok=True)
