"""Whatever a file holds, reading its header gives tensors that tile it or one of our errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx.contracts.errors import TensorFileError
from mtplx.contracts.tensor_header import DTYPE_BITS, TensorInfo, parse_header, read_header

if TYPE_CHECKING:
    from pathlib import Path

SOUND = {
    "__metadata__": {"format": "pt"},
    "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    "c": {"dtype": "U8", "shape": [0], "data_offsets": [32, 32]},
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(sorted(DTYPE_BITS)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def must_tile(tensors: dict[str, TensorInfo], data_size: int) -> None:
    """An independent statement of the law: byte by byte, everything is owned exactly once."""
    owners = [0] * data_size
    for name, tensor in tensors.items():
        assert tensor.name == name
        assert 0 <= tensor.start <= tensor.end <= data_size
        count = 1
        for size in tensor.shape:
            assert size >= 0
            count *= size
        assert count * DTYPE_BITS[tensor.dtype] == 8 * tensor.nbytes
        for byte in range(tensor.start, tensor.end):
            owners[byte] += 1
    assert owners == [1] * data_size


def accept_or_refuse(header: bytes, data_size: int) -> None:
    try:
        tensors, metadata = parse_header(header, data_size, "x.safetensors")
    except TensorFileError as error:
        refusal = error
    else:
        must_tile(tensors, data_size)
        assert all(isinstance(value, str) for value in metadata.values())
        return
    assert "x.safetensors" in str(refusal).encode().decode()
    assert refusal.hint


def test_the_sound_header_is_accepted() -> None:
    tensors, _ = parse_header(json.dumps(SOUND).encode(), 32, "x.safetensors")
    must_tile(tensors, 32)
    assert len(tensors) == 3


@given(
    st.sampled_from(["a.weight", "b.weight", "c"]),
    st.sampled_from(["dtype", "shape", "data_offsets", None]),
    json_values,
    st.integers(0, 40),
)
def test_one_value_replaced(name: str, key: str | None, value: Any, data_size: int) -> None:
    header = json.loads(json.dumps(SOUND))
    if key is None:
        header[name] = value
    else:
        header[name][key] = value
    accept_or_refuse(json.dumps(header).encode(), data_size)


@given(st.data())
def test_bytes_flipped_inserted_and_cut(data: st.DataObject) -> None:
    header = bytearray(json.dumps(SOUND).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(header) - 1))
        change = data.draw(st.sampled_from(["flip", "insert", "delete"]))
        if change == "delete" and len(header) > 1:
            del header[place]
        elif change == "insert":
            header.insert(place, data.draw(st.integers(0, 255)))
        else:
            header[place] = data.draw(st.integers(0, 255))
    accept_or_refuse(bytes(header), 32)


sizes = st.lists(st.integers(0, 5), max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["U8", "F16", "F4"]), sizes), max_size=5), st.data())
def test_sound_tilings_are_accepted_and_any_other_end_refused(
    specs: list[tuple[str, list[int]]], data: st.DataObject
) -> None:
    header: dict[str, Any] = {}
    end = 0
    for number, (dtype, shape) in enumerate(specs):
        bits = DTYPE_BITS[dtype]
        for size in shape:
            bits *= size
        start, end = end, end + (bits + 7) // 8
        if bits % 8 == 0:
            header[str(number)] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        else:
            end = start
    raw = json.dumps(header).encode()
    must_tile(parse_header(raw, end, "x")[0], end)
    other = data.draw(st.integers(0, 200).filter(lambda n: n != end))
    with pytest.raises(TensorFileError):
        parse_header(raw, other, "x")


@settings(max_examples=50)
@given(st.binary(max_size=64), st.none() | st.integers(0, 80))
def test_arbitrary_files(tmp_path: Path, content: bytes, length: int | None) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content if length is None else length.to_bytes(8, "little") + content)
    try:
        tensors, _ = read_header(path)
    except TensorFileError:
        return
    raw = path.read_bytes()
    must_tile(tensors, len(raw) - 8 - int.from_bytes(raw[:8], "little"))
