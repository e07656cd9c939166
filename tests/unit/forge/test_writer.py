"""Safetensors written tensor by tensor: readable by everyone, the same bytes every time."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest
from safetensors import safe_open

from mtplx.contracts.errors import ResourceError
from mtplx.contracts.identity import record_file
from mtplx.contracts.tensor_header import read_header
from mtplx.forge.convert.writer import header_bytes, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

PT = {"format": "pt"}


def sample() -> dict[str, mx.array]:
    """Lazy arrays of every type an artifact has, in awkward shapes."""
    base = mx.arange(24, dtype=mx.float32) / 7
    return {
        "b.bf16": base.astype(mx.bfloat16).reshape(2, 3, 4),
        "c.f16": base.astype(mx.float16).reshape(4, 6).T,
        "a.f32": base.reshape(3, 8)[:, 1:4],
        "packed.u32": mx.arange(5, dtype=mx.uint32) * 123456789,
        "ids.i32": -mx.arange(5, dtype=mx.int32),
        "bytes.u8": mx.arange(3, dtype=mx.uint8),
        "scalar": mx.array(1.5, dtype=mx.bfloat16),
        "empty": mx.zeros((0, 4)),
        "moved": base.reshape(2, 3, 4).moveaxis(2, 1),
        "naïve.Ω": mx.array([1.0]),
    }


def test_everything_is_read_back_by_mlx_and_by_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, sample(), metadata=PT)
    expected = sample()
    found = mx.load(str(path))
    assert isinstance(found, dict)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        assert mx.array_equal(found[name], value)
    with safe_open(path, framework="numpy") as file:
        assert file.metadata() == PT
        assert set(file.keys()) == set(expected)
        np.testing.assert_array_equal(file.get_tensor("moved"), np.array(expected["moved"]))


def test_tensors_are_aligned_and_the_header_follows_the_rules_of_the_format(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, sample(), metadata=PT)
    tensors, metadata = read_header(path)
    assert metadata == PT
    assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0
    for name, tensor in tensors.items():
        assert tensor.start % sample()[name].itemsize == 0


def test_the_record_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.safetensors"
    sizes: list[int] = []
    record = write_tensors(path, sample(), metadata=PT, on_bytes=sizes.append)
    assert record == record_file(path)
    assert sum(sizes) == sum(value.nbytes for value in sample().values())


def test_the_same_tensors_in_any_order_make_the_same_bytes(tmp_path: Path) -> None:
    backwards = dict(reversed(sample().items()))
    first = write_tensors(tmp_path / "a.safetensors", sample(), metadata=PT)
    assert write_tensors(tmp_path / "b.safetensors", backwards, metadata=PT) == first
    assert header_bytes(sample(), PT) == header_bytes(dict(reversed(sample().items())), PT)


def test_arrays_are_let_go_one_by_one(tmp_path: Path) -> None:
    tensors = sample()
    left: list[int] = []
    write_tensors(
        tmp_path / "x.safetensors",
        tensors,
        metadata=PT,
        on_bytes=lambda _: left.append(len(tensors)),
    )
    assert left == list(range(len(sample()) - 1, -1, -1))


def test_a_full_disk_leaves_the_old_file_and_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"old")

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match=r"x\.safetensors cannot be written: No space left"):
        write_tensors(path, sample(), metadata=PT)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]
