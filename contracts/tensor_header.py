"""The header of one safetensors file, validated before anything trusts it.

A file is an 8-byte little-endian length, a JSON header of that length, and the tensors' bytes.
The loader of MLX takes the header at its word, so every rule is checked here: the header fits
into the file, keys are unique, dtypes are known, shapes are counts, shape times dtype equals the
byte range, the ranges tile the data without hole or overlap, and the data ends with the file.
"""

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mtplx.contracts.errors import TensorFileError
from mtplx.contracts.json_object import parse_object

MAX_HEADER_BYTES = 100_000_000

DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}

_LFS_POINTER = b"version https://git-lfs"
_MAX_COUNT = 2**63 - 1
_MAX_RANK = 64
_FETCH_AGAIN = "Incomplete or damaged download? Delete the file and fetch it again."


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies. `start` and `end` count bytes from the end of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """Bytes the tensor takes in the file."""
        return self.end - self.start


def read_header(
    path: Path, *, file: str | None = None
) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """Tensors by name, and the file's metadata, from the header of the safetensors file `path`.

    `file` is the name recorded in each `TensorInfo` and in messages (default: the file's own).
    No tensor data is read. Raises TensorFileError when any rule of the format is broken.
    """
    name = file or path.name
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _bad(name, "is not a regular file", hint="Put the weight file itself there.")
        with path.open("rb") as handle:
            raw, data_size = _read_raw(handle, status.st_size, name)
    except OSError as cause:
        raise _bad(name, f"cannot be read: {cause.strerror or cause}") from cause
    return parse_header(raw, data_size, name)


def read_raw_header(path: Path) -> bytes:
    """The header's bytes, without the 8 bytes of length before them and without a look at them.

    Raises OSError, and TensorFileError when the file is too short for the length it gives.
    """
    with path.open("rb") as handle:
        raw, _ = _read_raw(handle, path.stat().st_size, path.name)
    return raw


def parse_header(
    raw: bytes, data_size: int, file: str
) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """What `read_header` returns, from the header's bytes and the number of data bytes after it."""
    if raw[:1] != b"{":
        raise _bad(file, f"has a header that begins with {raw[:1]!r}, expected '{{'")
    try:
        entries = parse_object(raw, unique_keys=True)
    except ValueError as cause:
        raise _bad(file, f"has a header that is not a JSON object: {cause}") from None
    metadata = _metadata(entries.pop("__metadata__", {}), file)
    tensors = {name: _tensor(name, entry, file) for name, entry in entries.items()}
    _check_tiling(tensors, data_size, file)
    return tensors, metadata


def shortened(text: str, limit: int = 120) -> str:
    """`text` fit for messages: cut to `limit` characters, with unprintable ones escaped."""
    shown = text[: limit + 1]
    shown = shown if shown.isprintable() else ascii(shown)
    return shown if len(shown) <= limit else f"{shown[:limit]}…"


def _read_raw(handle: BinaryIO, size: int, file: str) -> tuple[bytes, int]:
    """Header bytes and the number of bytes that follow them."""
    prefix = handle.read(8)
    if len(prefix) < 8:
        raise _bad(file, f"is {size} bytes long, too short for a safetensors header")
    if _LFS_POINTER.startswith(prefix):
        raise _bad(
            file,
            "is a Git LFS pointer, not the weights",
            hint="Run `git lfs pull` in the folder, or download the model with `hf download`.",
        )
    length = int.from_bytes(prefix, "little")
    if length > MAX_HEADER_BYTES:
        raise _bad(file, f"claims a header of {length} bytes; at most {MAX_HEADER_BYTES} is valid")
    if 8 + length > size:
        raise _bad(file, f"claims a header of {length} bytes but is only {size} bytes long")
    raw = handle.read(length)
    if len(raw) != length:
        raise _bad(file, f"ends inside its header after {len(raw)} of {length} bytes")
    return raw, size - 8 - length


def _metadata(value: Any, file: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise _bad(file, "has a __metadata__ entry that is not a map from text to text")
    return value


def _tensor(name: str, entry: Any, file: str) -> TensorInfo:
    """One header entry. Keys beyond dtype, shape and data_offsets are ignored."""
    if not name or not name.isprintable():
        raise _bad(file, f"has a tensor name with unprintable characters: {shortened(ascii(name))}")
    label = shortened(name)
    if not isinstance(entry, dict):
        raise _bad(file, f"describes tensor '{label}' by a {type(entry).__name__}, not an object")
    for key in ("dtype", "shape", "data_offsets"):
        if key not in entry:
            raise _bad(file, f"gives no {key} for tensor '{label}'")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise _bad(file, f"gives tensor '{label}' the unknown dtype {shortened(ascii(dtype))}")
    if not _counts(shape) or len(shape) > _MAX_RANK:
        raise _bad(file, f"gives tensor '{label}' a shape that is not a list of sizes")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _bad(file, f"gives tensor '{label}' data offsets that are not two ascending counts")
    nbytes = _nbytes(shape, dtype)
    if nbytes is None:
        raise _bad(file, f"gives tensor '{label}' a shape that overflows or fills no whole byte")
    start, end = offsets
    if end - start != nbytes:
        raise _bad(
            file, f"gives tensor '{label}' {end - start} bytes, but {dtype} {shape} takes {nbytes}"
        )
    return TensorInfo(name, dtype, tuple(shape), file, start, end)


def _counts(value: Any) -> bool:
    """Whether `value` is a list of integers in 0..2^63-1; JSON booleans are not counts."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= _MAX_COUNT for n in value)


def _nbytes(shape: list[int], dtype: str) -> int | None:
    """Bytes of a tensor; None when a partial product leaves 63 bits or the bits fill no byte."""
    count = 1
    for size in shape:
        count *= size
        if count > _MAX_COUNT:
            return None
    bits = count * DTYPE_BITS[dtype]
    return bits // 8 if bits % 8 == 0 and bits // 8 <= _MAX_COUNT else None


def _check_tiling(tensors: dict[str, TensorInfo], data_size: int, file: str) -> None:
    """The byte ranges must cover the data exactly once. Empty tensors share no byte."""
    position = 0
    previous = "the header"
    for tensor in sorted(tensors.values(), key=lambda t: (t.start, t.end)):
        if tensor.start != position:
            fault = "overlaps" if tensor.start < position else "leaves a hole after"
            raise _bad(
                file,
                f"is inconsistent: tensor '{shortened(tensor.name)}' starts at byte "
                f"{tensor.start} and {fault} {previous}, which ends at {position}",
            )
        position, previous = tensor.end, f"'{shortened(tensor.name)}'"
    if position != data_size:
        kind = "truncated" if data_size < position else "longer than its header says"
        raise _bad(file, f"is {kind}: expected {position} bytes of data, found {data_size}")


def _bad(file: str, fault: str, *, hint: str = _FETCH_AGAIN) -> TensorFileError:
    return TensorFileError(f"{file} {fault}.", hint=hint)
