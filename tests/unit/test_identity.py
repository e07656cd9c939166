"""The content identity: what changes it and what must not."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import CorruptModelError, TensorFileError
from mtplx.contracts.identity import (
    Identity,
    Role,
    content_identity,
    header_sha256,
    identity_files,
    record_file,
)

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = ("model.safetensors", "mtp/head.safetensors")
# Both begin with the length of a header of two bytes.
CONTENT = {
    "model.safetensors": "\2\0\0\0\0\0\0\0{}trunk",
    "mtp/head.safetensors": "\2\0\0\0\0\0\0\0{}head",
    "config.json": "{}",
    "generation_config.json": "{}",
    "tokenizer.json": "words",
    "tokenizer_config.json": "{}",
    "chat_template.jinja": "template",
    "additional_chat_templates/tool_use.jinja": "tools",
    "README.md": "words for people",
    "mtplx_runtime.json": "{}",
    "model.fp16.safetensors": "a stray file",
}
COUNTED = set(CONTENT) - {"README.md", "mtplx_runtime.json", "model.fp16.safetensors"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in CONTENT.items():
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "model"


def identity(folder: Path) -> Identity:
    return content_identity(folder, WEIGHTS)


def test_all_files_that_decide_the_output_are_counted(folder: Path) -> None:
    found = identity(folder)
    assert {file.name for file in found.files} == COUNTED
    roles = {file.name: file.role for file in found.files}
    assert roles["mtp/head.safetensors"] == "weights"
    assert roles["tokenizer_config.json"] == "tokenizer"
    assert roles["additional_chat_templates/tool_use.jinja"] == "template"
    assert roles["generation_config.json"] == "config"
    assert found.records().keys() == COUNTED


def test_record_of_weights_tells_the_header_from_the_rest(folder: Path) -> None:
    path = folder / "model.safetensors"
    before = record_file(path)
    assert before.size == len(CONTENT["model.safetensors"])
    assert before.header_sha256 == header_sha256(path)
    path.write_text("\2\0\0\0\0\0\0\0{}TRUNK")
    assert record_file(path).header_sha256 == before.header_sha256
    assert record_file(path).sha256 != before.sha256
    path.write_text("\2\0\0\0\0\0\0\0[]trunk")
    assert record_file(path).header_sha256 != before.header_sha256
    assert record_file(folder / "config.json").header_sha256 is None


def test_weights_too_short_for_a_header(folder: Path) -> None:
    (folder / "model.safetensors").write_text("trunk")
    with pytest.raises(TensorFileError, match="too short"):
        record_file(folder / "model.safetensors")


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_any_changed_byte_changes_the_identity_and_its_role_only(folder: Path, name: str) -> None:
    before = identity(folder)
    (folder / name).write_text(CONTENT[name] + " ")
    after = identity(folder)
    assert after.combined != before.combined
    roles: tuple[Role, ...] = ("weights", "tokenizer", "template", "config")
    changed = [role for role in roles if before.of(role) != after.of(role)]
    assert changed == [next(f.role for f in before.files if f.name == name)]


@pytest.mark.parametrize("name", sorted(set(CONTENT) - COUNTED))
def test_other_files_do_not_count(folder: Path, name: str) -> None:
    before = identity(folder).combined
    (folder / name).write_text("different")
    assert identity(folder).combined == before


def test_place_of_the_folder_does_not_count(folder: Path) -> None:
    copy = folder.parent / "nemotron-glm-qwen-mix"
    shutil.copytree(folder, copy)
    assert identity(copy).combined == identity(folder).combined


def test_exchanged_contents_are_another_model(folder: Path) -> None:
    before = identity(folder).combined
    (folder / "model.safetensors").write_text(CONTENT["mtp/head.safetensors"])
    (folder / "mtp/head.safetensors").write_text(CONTENT["model.safetensors"])
    assert identity(folder).combined != before


def test_order_of_the_weight_files_does_not_count(folder: Path) -> None:
    assert content_identity(folder, WEIGHTS[::-1]).combined == identity(folder).combined
    assert identity_files(folder, WEIGHTS[::-1]) == identity_files(folder, WEIGHTS)


def test_progress_ends_at_the_total(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    content_identity(folder, WEIGHTS, on_progress=lambda done, total: seen.append((done, total)))
    total = sum(len(CONTENT[name]) for name in COUNTED)
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


def test_account_can_be_written_as_json(folder: Path) -> None:
    shown = json.loads(json.dumps(identity(folder).to_json()))
    assert shown["identity"] == identity(folder).combined
    assert len(shown["files"]) == len(COUNTED)


def test_weights_that_are_not_there(folder: Path) -> None:
    with pytest.raises(CorruptModelError, match="absent"):
        content_identity(folder, ("absent.safetensors",))


def test_weights_outside_the_folder(folder: Path) -> None:
    with pytest.raises(TensorFileError, match="leads out"):
        content_identity(folder, ("../other.safetensors",))
