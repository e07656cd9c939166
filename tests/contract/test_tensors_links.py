"""Links in model folders: the Hugging Face cache is made of them, others must stay inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import ShardMissingError, TensorFileError
from mtplx.contracts.tensors import read_tensor_index
from tests.support.header_models import blank
from tests.support.tensorfile import write_tensors

if TYPE_CHECKING:
    from pathlib import Path


def snapshot(cache: Path, repository: str = "models--org--name") -> Path:
    """A snapshot of the hub cache: a link into `blobs` of its repository."""
    blob = cache / repository / "blobs" / "ab12"
    write_tensors(blob, blank("a"))
    folder = cache / repository / "snapshots" / "c0ffee"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").symlink_to("../../blobs/ab12")
    return folder


def test_snapshot_of_the_hub_cache_is_read(tmp_path: Path) -> None:
    assert read_tensor_index(snapshot(tmp_path)).tensors.keys() == {"a"}


def test_link_to_a_snapshot_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(snapshot(tmp_path), target_is_directory=True)
    assert read_tensor_index(tmp_path / "mine").tensors.keys() == {"a"}


def test_subfolder_of_a_snapshot_is_read(tmp_path: Path) -> None:
    folder = snapshot(tmp_path) / "bf16"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to("../../../blobs/ab12")
    assert read_tensor_index(folder).tensors.keys() == {"a"}


def test_blob_that_was_never_downloaded_is_missing(tmp_path: Path) -> None:
    folder = snapshot(tmp_path)
    (tmp_path / "models--org--name/blobs/ab12").unlink()
    with pytest.raises(ShardMissingError):
        read_tensor_index(folder)


def test_snapshot_may_not_link_into_another_repository(tmp_path: Path) -> None:
    snapshot(tmp_path, "models--org--other")
    folder = snapshot(tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(tmp_path / "models--org--other/blobs/ab12")
    with pytest.raises(TensorFileError, match="outside the model folder"):
        read_tensor_index(folder)


def test_snapshot_may_not_link_past_its_blobs(tmp_path: Path) -> None:
    folder = snapshot(tmp_path)
    blobs = tmp_path / "models--org--name/blobs"
    write_tensors(tmp_path / "elsewhere/ab12", blank("a"))
    (blobs / "ab12").unlink()
    blobs.rmdir()
    blobs.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(TensorFileError, match="outside the model folder"):
        read_tensor_index(folder)


def test_plain_folder_may_not_link_out(tmp_path: Path) -> None:
    write_tensors(tmp_path / "secret.safetensors", blank("a"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to(tmp_path / "secret.safetensors")
    with pytest.raises(TensorFileError, match="outside the model folder"):
        read_tensor_index(folder)


def test_folder_that_only_looks_like_a_cache_may_not_link_out(tmp_path: Path) -> None:
    folder = tmp_path / "repository" / "snapshots" / "c0ffee"
    folder.mkdir(parents=True)
    write_tensors(tmp_path / "repository/blobs/ab12", blank("a"))
    (folder / "model.safetensors").symlink_to("../../blobs/ab12")
    with pytest.raises(TensorFileError, match="outside the model folder"):
        read_tensor_index(folder)


def test_linked_sidecar_folder_may_not_lead_out(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_tensors(folder / "model.safetensors", blank("a"))
    write_tensors(tmp_path / "other/head.safetensors", blank("mtp.fc.weight"))
    (folder / "mtp").symlink_to(tmp_path / "other", target_is_directory=True)
    with pytest.raises(TensorFileError, match="outside the model folder"):
        read_tensor_index(folder)


def test_links_inside_the_folder_are_fine(tmp_path: Path) -> None:
    write_tensors(tmp_path / "weights/real.safetensors", blank("a"))
    (tmp_path / "model.safetensors").symlink_to("weights/real.safetensors")
    assert read_tensor_index(tmp_path).tensors.keys() == {"a"}
