"""Safetensors files written and read byte by byte, independently of the code under test."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_NUMPY = {"F32": "<f4", "F16": "<f2", "I32": "<i4", "U32": "<u4", "U8": "u1"}
ITEM_SIZE = {"F32": 4, "F16": 2, "I32": 4, "U32": 4, "U8": 1, "BF16": 2, "F8_E4M3": 1}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One stored tensor: safetensors dtype name, shape and raw little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def encode(values: NDArray[Any], dtype: str) -> Tensor:
    """Store ``values`` as ``dtype`` (BF16 rounds to nearest even; F8_E4M3 takes codes as uint8)."""
    if dtype == "BF16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return Tensor(dtype, values.shape, rounded.astype("<u2").tobytes())
    stored = "u1" if dtype == "F8_E4M3" else _NUMPY[dtype]
    return Tensor(dtype, values.shape, np.ascontiguousarray(values).astype(stored).tobytes())


def decode(tensor: Tensor) -> NDArray[Any]:
    """The stored values: BF16 widened to float32, F8_E4M3 as its uint8 codes."""
    if tensor.dtype == "BF16":
        bits = np.frombuffer(tensor.data, "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).reshape(tensor.shape)
    stored = "u1" if tensor.dtype == "F8_E4M3" else _NUMPY[tensor.dtype]
    return np.frombuffer(tensor.data, stored).reshape(tensor.shape)


def round_to(values: NDArray[np.float32], dtype: str) -> NDArray[np.float32]:
    """``values`` as they come back after being stored as ``dtype``."""
    return np.asarray(decode(encode(values, dtype)), np.float32)


def write_header(path: Path, header: Mapping[str, Any], data: bytes) -> None:
    """Write any header over any data, valid or not."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read_header(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a valid file and the bytes behind it."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, made_by: str = "pt") -> None:
    """Write a valid file; ``made_by`` is the metadata's ``format`` (``pt`` or ``mlx``)."""
    header: dict[str, Any] = {"__metadata__": {"format": made_by}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + len(tensor.data)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    path.parent.mkdir(parents=True, exist_ok=True)
    write_header(path, header, b"".join(t.data for t in tensors.values()))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a valid file."""
    header, data = read_header(path)
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        tensors[name] = Tensor(entry["dtype"], tuple(entry["shape"]), data[start:end])
    return tensors


def read_values(path: Path) -> dict[str, NDArray[Any]]:
    """Every tensor of a valid file as numpy values (see `decode`)."""
    return {name: decode(tensor) for name, tensor in read_tensors(path).items()}
