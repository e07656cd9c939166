"""Which files and tensors a folder is read from, and which folders are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import ShardMissingError, TensorFileError
from mtplx.contracts.tensors import read_tensor_index
from tests.support.header_models import INDEX, blank, write_sharded
from tests.support.tensorfile import write_tensors

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return write_sharded(tmp_path / "model", {ONE: ["a", "b"], TWO: ["c"]})


def write_index(folder: Path, weight_map: object) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def test_index_gives_files_and_tensors(sharded: Path) -> None:
    index = read_tensor_index(sharded)
    assert index.files == (ONE, TWO)
    assert {name: tensor.file for name, tensor in index.tensors.items()} == {
        "a": ONE,
        "b": ONE,
        "c": TWO,
    }
    assert index.nbytes == 24
    assert index.metadata[ONE] == {"format": "pt"}
    assert index.warnings == index.ignored_files == index.sidecars == ()


def test_complete_numbered_set_needs_no_index(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    assert read_tensor_index(sharded).files == (ONE, TWO)


def test_single_file_needs_no_index(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", blank("a"))
    assert read_tensor_index(tmp_path).files == ("model.safetensors",)


def test_first_of_two_shards_alone_is_incomplete(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    (sharded / TWO).unlink()
    with pytest.raises(ShardMissingError, match="1 of 2 shards") as caught:
        read_tensor_index(sharded)
    assert caught.value.missing == (TWO,)
    assert "Incomplete download?" in caught.value.hint
    assert f"hf download REPO --local-dir {sharded}" in caught.value.hint


def test_every_missing_shard_is_listed_in_the_error_object(tmp_path: Path) -> None:
    names = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
    folder = write_sharded(tmp_path, {name: [name[6:11]] for name in names})
    (folder / names[0]).unlink()
    (folder / names[2]).unlink()
    with pytest.raises(ShardMissingError) as caught:
        read_tensor_index(folder)
    assert caught.value.to_json()["missing"] == [names[0], names[2]]


def test_tensor_in_the_other_shard_contradicts_the_index(sharded: Path) -> None:
    write_index(sharded, {"a": ONE, "b": TWO, "c": TWO})
    with pytest.raises(TensorFileError, match=f"b \\({TWO}\\)"):
        read_tensor_index(sharded)


def test_tensor_the_index_omits_is_read_and_reported(sharded: Path) -> None:
    write_index(sharded, {"a": ONE, "c": TWO})
    index = read_tensor_index(sharded)
    assert index.tensors["b"].file == ONE
    assert "1 tensors" in index.warnings[0]
    assert ": b" in index.warnings[0]


def test_stray_files_are_ignored_even_when_they_are_no_safetensors(sharded: Path) -> None:
    (sharded / "model.safetensors").write_bytes(b"4-bit left-over")
    (sharded / "model.fp16.safetensors").write_bytes(b"")
    index = read_tensor_index(sharded)
    assert index.ignored_files == ("model.fp16.safetensors", "model.safetensors")
    assert index.tensors.keys() == {"a", "b", "c"}
    assert [w.split()[0] for w in index.warnings] == list(index.ignored_files)


def test_weights_of_other_names_are_no_part_of_the_model(sharded: Path) -> None:
    write_tensors(sharded / "reference.safetensors", blank("a"))
    assert read_tensor_index(sharded).files == (ONE, TWO)


def test_stale_index_beside_a_whole_file_gets_a_repair_hint(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", blank("a", "b"))
    write_index(tmp_path, {"a": "old-1.safetensors", "b": "old-2.safetensors"})
    index = read_tensor_index(tmp_path)
    assert index.tensors.keys() == {"a", "b"}
    assert f"delete {tmp_path / INDEX}" in index.warnings[0]


def test_half_a_download_is_not_excused_by_a_stray_file(sharded: Path) -> None:
    (sharded / TWO).unlink()
    write_tensors(sharded / "model.safetensors", blank("a", "b", "c"))
    with pytest.raises(ShardMissingError) as caught:
        read_tensor_index(sharded)
    assert caught.value.missing == (TWO,)


@pytest.mark.parametrize(
    "sidecar",
    ["mtp.safetensors", "mtp/head.safetensors", "mtp/w.safetensors", "model-mtp-1.safetensors"],
)
def test_sidecars_are_read_last(sharded: Path, sidecar: str) -> None:
    write_tensors(sharded / sidecar, blank("mtp.fc.weight"))
    index = read_tensor_index(sharded)
    assert index.files == (ONE, TWO, sidecar)
    assert index.sidecars == (sidecar,)
    assert index.tensors["mtp.fc.weight"].file == sidecar
    assert not index.warnings


def test_sidecar_named_by_the_index_is_an_ordinary_file(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, {"model-1.safetensors": ["a"], "mtp.safetensors": ["mtp.x"]})
    index = read_tensor_index(folder)
    assert index.files == ("model-1.safetensors", "mtp.safetensors")
    assert index.sidecars == ()


def test_tensor_in_shard_and_sidecar_is_refused(sharded: Path) -> None:
    write_tensors(sharded / "mtp.safetensors", blank("a"))
    with pytest.raises(TensorFileError, match=f"'a' is held by both {ONE} and mtp.safetensors"):
        read_tensor_index(sharded)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": {}}',
        '{"weight_map": []}',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": "x", "a": "y"}}',
    ],
)
def test_index_without_a_usable_map(sharded: Path, text: str) -> None:
    (sharded / INDEX).write_text(text)
    with pytest.raises(TensorFileError, match=INDEX):
        read_tensor_index(sharded)


@pytest.mark.parametrize(
    "name",
    [
        "../secret.safetensors",
        "sub/../../secret.safetensors",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a\\..\\b.safetensors",
        "a\nb.safetensors",
        "a\0b",
    ],
)
def test_index_names_that_leave_the_folder(sharded: Path, name: str) -> None:
    write_tensors(sharded.parent / "secret.safetensors", blank("a"))
    write_index(sharded, {"a": name})
    with pytest.raises(TensorFileError, match="leads out of the model folder"):
        read_tensor_index(sharded)


def test_index_in_a_subfolder_of_the_model_is_fine(tmp_path: Path) -> None:
    write_tensors(tmp_path / "weights/one.safetensors", blank("a"))
    write_index(tmp_path, {"a": "weights/one.safetensors"})
    assert read_tensor_index(tmp_path).tensors["a"].file == "weights/one.safetensors"


def test_pickles_are_not_weights(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(ShardMissingError, match="has no weights") as caught:
        read_tensor_index(tmp_path)
    assert "Only safetensors" in caught.value.hint


def test_pickle_named_by_an_index_is_refused(sharded: Path) -> None:
    (sharded / "pytorch_model.bin").write_bytes(b"\x80\x04" + bytes(20))
    write_index(sharded, {"a": "pytorch_model.bin"})
    with pytest.raises(TensorFileError, match=r"pytorch_model\.bin"):
        read_tensor_index(sharded)
