"""The safetensors header validator: what it accepts, and every way a file can lie."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mtplx.contracts.errors import TensorFileError
from mtplx.contracts.tensor_header import MAX_HEADER_BYTES
from mtplx.contracts.tensors import TensorInfo, read_header
from tests.support.tensorfile import write_header

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def entry(dtype: Any, shape: Any, start: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def write_raw(path: Path, header: bytes, data: bytes = b"") -> Path:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.safetensors"


def test_agrees_with_the_reference_writer(file: Path) -> None:
    arrays: dict[str, NDArray[Any]] = {
        "matrix": np.zeros((3, 5), np.float32),
        "scalar": np.array(1.0, np.float16),
        "empty": np.zeros((0, 4), np.int32),
        "bytes": np.zeros(7, np.uint8),
    }
    save_file(arrays, file, metadata={"format": "np"})
    tensors, metadata = read_header(file)
    assert metadata == {"format": "np"}
    assert {n: (t.dtype, t.shape, t.nbytes) for n, t in tensors.items()} == {
        "matrix": ("F32", (3, 5), 60),
        "scalar": ("F16", (), 2),
        "empty": ("I32", (0, 4), 0),
        "bytes": ("U8", (7,), 7),
    }


def test_recorded_file_name_is_the_one_given(file: Path) -> None:
    write_header(file, {"w": entry("BF16", [2, 3], 0, 12)}, bytes(12))
    tensors, _ = read_header(file, file="mtp/head.safetensors")
    assert tensors["w"] == TensorInfo("w", "BF16", (2, 3), "mtp/head.safetensors", 0, 12)


def test_packed_dtypes_count_bits(file: Path) -> None:
    header = {"four": entry("F4", [2, 4], 0, 4), "six": entry("F6_E2M3", [4], 4, 7)}
    write_header(file, header, bytes(7))
    tensors, _ = read_header(file)
    assert tensors["four"].nbytes == 4
    assert tensors["six"].nbytes == 3


def test_order_in_the_header_is_free(file: Path) -> None:
    write_header(file, {"b": entry("U8", [2], 3, 5), "a": entry("U8", [3], 0, 3)}, bytes(5))
    assert read_header(file)[0].keys() == {"a", "b"}


def test_empty_tensors_share_an_offset_but_no_byte(file: Path) -> None:
    header = {
        "none": entry("F32", [0], 0, 0),
        "w": entry("U8", [4], 0, 4),
        "last": entry("F32", [5, 0], 4, 4),
    }
    write_header(file, header, bytes(4))
    assert len(read_header(file)[0]) == 3


LIES: dict[str, tuple[dict[str, Any], int, str]] = {
    "overlap": ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, 6, "overlaps"),
    "same bytes twice": ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 0, 4)}, 4, "overlaps"),
    "hole": ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 6, 10)}, 10, "hole"),
    "hole at the start": ({"a": entry("U8", [4], 2, 6)}, 6, "hole"),
    "empty inside another": ({"a": entry("U8", [8], 0, 8), "z": entry("U8", [0], 4, 4)}, 8, "over"),
    "truncated": ({"a": entry("U8", [9], 0, 9)}, 8, "truncated"),
    "longer": ({"a": entry("U8", [7], 0, 7)}, 8, "longer"),
    "data without tensors": ({}, 3, "longer"),
    "reversed offsets": ({"a": entry("U8", [4], 4, 0)}, 4, "ascending"),
    "negative offset": ({"a": entry("U8", [4], -4, 0)}, 4, "ascending"),
    "huge offset": ({"a": entry("U8", [4], 0, 2**64)}, 4, "ascending"),
    "fractional offset": ({"a": entry("U8", [4], 0, 4.0)}, 4, "ascending"),
    "three offsets": ({"a": {**entry("U8", [4], 0, 4), "data_offsets": [0, 2, 4]}}, 4, "two"),
    "shape against bytes": ({"a": entry("F32", [2], 0, 4)}, 4, "takes 8"),
    "negative size": ({"a": entry("U8", [-4], 0, 4)}, 4, "list of sizes"),
    "two negative sizes": ({"a": entry("U8", [-2, -2], 0, 4)}, 4, "list of sizes"),
    "fractional size": ({"a": entry("U8", [4.0], 0, 4)}, 4, "list of sizes"),
    "boolean size": ({"a": entry("U8", [True], 0, 1)}, 1, "list of sizes"),
    "shape is a number": ({"a": entry("U8", 4, 0, 4)}, 4, "list of sizes"),
    "product wraps to 4": ({"a": entry("U8", [2**62 + 1, 4], 0, 4)}, 4, "overflows"),
    "product wraps to 0": ({"a": entry("F32", [2**32, 2**32], 0, 0)}, 0, "overflows"),
    "bytes overflow": ({"a": entry("F64", [2**62], 0, 0)}, 0, "overflows"),
    "hundred dimensions": ({"a": entry("U8", [1] * 100, 0, 1)}, 1, "list of sizes"),
    "half a byte": ({"a": entry("F4", [3], 0, 1)}, 1, "whole byte"),
    "unknown dtype": ({"a": entry("Q4_K", [4], 0, 4)}, 4, "Q4_K"),
    "dtype in lower case": ({"a": entry("f32", [1], 0, 4)}, 4, "f32"),
    "dtype is a list": ({"a": entry(["U8"], [4], 0, 4)}, 4, "dtype"),
    "no shape": ({"a": {"dtype": "U8", "data_offsets": [0, 4]}}, 4, "no shape"),
    "tensor is a list": ({"a": [1, 2]}, 0, "list"),
    "metadata of numbers": ({"__metadata__": {"n": 1}}, 0, "__metadata__"),
    "metadata is text": ({"__metadata__": "pt"}, 0, "__metadata__"),
    "name with a newline": ({"a\nb": entry("U8", [1], 0, 1)}, 1, "unprintable"),
    "name with an escape": ({"\x1b[2J": entry("U8", [1], 0, 1)}, 1, "unprintable"),
    "name that is no text": ({"\ud800": entry("U8", [1], 0, 1)}, 1, "unprintable"),
    "empty name": ({"": entry("U8", [1], 0, 1)}, 1, "unprintable"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lie_is_refused_with_the_file_and_the_fault(file: Path, lie: str) -> None:
    header, size, fault = LIES[lie]
    write_header(file, header, bytes(size))
    with pytest.raises(TensorFileError, match=fault) as caught:
        read_header(file)
    assert "x.safetensors" in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 4
    caught.value.message.encode()


BYTES: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"{oops}", "JSON"),
    "array": (b"[]", "begins with"),
    "leading space": (b" {}", "begins with"),
    "empty": (b"", "begins with"),
    "UTF-16": ("{}".encode("utf-16"), "begins with"),
    "bad UTF-8": (b'{"\xff": 1}', "UTF-8"),
    "trailing value": (b"{} {}", "JSON"),
    "duplicate tensor": (
        b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
        b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
        "twice",
    ),
    "duplicate field": (
        b'{"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}',
        "twice",
    ),
    "deep nesting": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "JSON"),
    "endless number": (b'{"a":' + b"9" * 10_000 + b"}", "JSON"),
    "not a number": (b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,0]}}', "list of sizes"),
}


@pytest.mark.parametrize("name", BYTES)
def test_header_bytes_that_are_no_header(file: Path, name: str) -> None:
    header, fault = BYTES[name]
    write_raw(file, header)
    with pytest.raises(TensorFileError, match=fault):
        read_header(file)


@pytest.mark.parametrize("length", [0, 5, 7])
def test_file_shorter_than_its_length_field(file: Path, length: int) -> None:
    file.write_bytes(bytes(length))
    with pytest.raises(TensorFileError, match="too short"):
        read_header(file)


@pytest.mark.parametrize("claim", [3, 2**31, MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1])
def test_header_that_does_not_fit_is_not_read(file: Path, claim: int) -> None:
    file.write_bytes(claim.to_bytes(8, "little") + b"{}")
    with pytest.raises(TensorFileError, match="claims a header"):
        read_header(file)


def test_git_lfs_pointer_is_named_as_such(file: Path) -> None:
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    with pytest.raises(TensorFileError, match="Git LFS pointer") as caught:
        read_header(file)
    assert "git lfs pull" in caught.value.hint


def test_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(TensorFileError, match="not a regular file"):
        read_header(tmp_path / "model.safetensors")


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(TensorFileError, match="cannot be read"):
        read_header(tmp_path / "none.safetensors")


def test_long_names_do_not_flood_the_message(file: Path) -> None:
    write_header(file, {"n" * 100_000: entry("U8", [2], 0, 1)}, bytes(1))
    with pytest.raises(TensorFileError) as caught:
        read_header(file)
    assert len(caught.value.message) < 500


def test_padding_after_the_object_is_allowed(file: Path) -> None:
    header = json.dumps({"w": entry("U8", [1], 0, 1)}).encode() + b" " * 40
    assert read_header(write_raw(file, header, b"\0"))[0]["w"].nbytes == 1
