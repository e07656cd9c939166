"""What has to be sent to a repository, what is left alone, and what is taken away."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import DownloadError, UsageError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.forge.hub.download import RemoteFile
from mtplx.forge.publish.remote import RemoteState
from mtplx.forge.publish.upload import Upload, check_arrived, compare
from tests.support.hub_store import blob_for

if TYPE_CHECKING:
    from pathlib import Path

REPO = "org/model"


def remote(**files: bytes) -> RemoteState:
    """A repository with these files; `__` stands for the dot in a name."""
    found = {}
    for name, data in files.items():
        name = name.replace("__", ".")
        blob = blob_for(name, data)
        sha256 = blob.sha256 if blob.is_lfs else None
        found[name] = RemoteFile(name, len(data), blob.git_hash, sha256)
    return RemoteState("0" * 40, False, datetime.now(UTC), found)


def upload(name: str, text: str) -> Upload:
    return Upload.of_text(name, text)


def test_only_what_differs_is_sent() -> None:
    state = remote(config__json=b"{}", model__safetensors=b"weights", LICENSE=b"old text")
    state = RemoteState(
        state.commit,
        False,
        state.modified_at,
        {**state.files, CONTRACT_NAME: RemoteFile(CONTRACT_NAME, 1, "", None)},
    )
    same = [upload("config.json", "{}"), upload("model.safetensors", "weights")]
    new = [upload("LICENSE", "new text"), upload("README.md", "card"), upload(CONTRACT_NAME, "{}")]
    changes = compare([*same, *new], state, REPO)
    assert [file.name for file in changes.added] == [file.name for file in new]
    assert changes.unchanged == ("config.json", "model.safetensors")
    assert changes.deleted == ()
    assert changes.size == len("new text") + len("card") + len("{}")
    assert changes


def test_equal_size_does_not_make_files_equal() -> None:
    state = remote(config__json=b"{1}", model__safetensors=b"weightS")
    assert not upload("config.json", "{2}").is_at(state.files["config.json"])
    assert not upload("model.safetensors", "weights").is_at(state.files["model.safetensors"])
    assert not upload("config.json", "{1}").is_at(None)
    assert upload("config.json", "{1}").is_at(state.files["config.json"])


def test_a_file_on_disk_is_compared_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{}")
    file = Upload("config.json", 2, hashlib.sha256(b"{}").hexdigest(), path)
    assert file.is_at(remote(config__json=b"{}").files["config.json"])
    assert not file.is_at(remote(config__json=b"[]").files["config.json"])


def test_leftovers_that_would_be_loaded_are_deleted_and_others_stay() -> None:
    names = {
        CONTRACT_NAME: False,
        "model-00003-of-00003.safetensors": True,
        "mtp/old.safetensors": True,
        "chat_template.jinja": True,
        "additional_chat_templates/tools.jinja": True,
        "generation_config.json": True,
        "tokenizer.model": True,
        ".gitattributes": False,
        "LICENSE": False,
        "picture.png": False,
        "docs/config.json": False,
        "eval.json": False,
    }
    state = RemoteState(
        "0" * 40,
        False,
        datetime.now(UTC),
        {name: RemoteFile(name, 1, "", None) for name in names},
    )
    changes = compare([upload(CONTRACT_NAME, "{}")], state, REPO)
    assert set(changes.deleted) == {name for name, goes in names.items() if goes}


@pytest.mark.parametrize("name", ["model__safetensors", "pytorch_model__bin", "x__gguf"])
def test_a_model_of_somebody_else_is_not_replaced(name: str) -> None:
    with pytest.raises(UsageError, match="no artifact of mtplx"):
        compare([upload("config.json", "{}")], remote(**{name: b"w"}), REPO)
    compare([upload("config.json", "{}")], remote(README__md=b"soon"), REPO)


def test_what_did_not_arrive_is_told() -> None:
    files = [upload("config.json", "{}"), upload("LICENSE", "text")]
    check_arrived(files, remote(config__json=b"{}", LICENSE=b"text"), REPO)
    with pytest.raises(DownloadError, match="does not hold LICENSE"):
        check_arrived(files, remote(config__json=b"{}"), REPO)
