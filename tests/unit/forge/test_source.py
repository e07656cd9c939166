"""What a source is named by, and which files of it count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import ModelNotFoundError, UsageError
from mtplx.contracts.inspection import inspect_folder
from mtplx.contracts.json_object import MAX_JSON_BYTES
from mtplx.forge.hub.address import Address, parse_address
from mtplx.forge.source import LocalSource, open_source
from mtplx.forge.source_files import is_other_format, is_side_file, model_weights, visible_weights

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory


def test_existing_folder_is_a_local_source(shared_tiny: TinyFactory) -> None:
    folder = shared_tiny("qwen3_5")
    source = open_source(str(folder))
    assert isinstance(source, LocalSource)
    assert (source.name, source.repo, source.commit) == (folder.name, None, None)
    told: list[tuple[int, int]] = []
    assert source.fetch(lambda done, total: told.append((done, total))) == folder
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert told == [(total, total)]
    with source.skeleton() as skeleton:
        assert skeleton == folder


def test_folder_goes_before_a_repository_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_source("org/model"), LocalSource)


@pytest.mark.parametrize(
    "options", [{}, {"sidecar": "mtp/head.safetensors"}, {"single_file": True}]
)
def test_files_of_a_folder_hold_every_weight_that_is_read(
    shared_tiny: TinyFactory, options: dict[str, object]
) -> None:
    folder = shared_tiny("glm4_moe", **options)
    index = inspect_folder(folder).index
    assert index is not None
    names = {file.name for file in LocalSource("x", folder).files}
    assert {name for name in names if name.endswith(".safetensors")} == set(index.files)
    assert {"config.json", "tokenizer.json"} <= names


def test_revision_of_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="local path"):
        open_source(str(tmp_path), revision="main")


@pytest.mark.parametrize(
    "text",
    ["", "gpt2", "./gone", "/gone/model", "~/gone", "~nobody/x", "a/b/c", "x" * 5000, "a\0b"],
)
def test_path_that_does_not_exist_is_not_found(text: str) -> None:
    with pytest.raises(ModelNotFoundError, match="does not exist"):
        open_source(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", Address("org/name")),
        ("hf:org/name", Address("org/name")),
        ("hf://org/name", Address("org/name")),
        ("https://huggingface.co/org/name", Address("org/name")),
        ("https://hf.co/org/name/tree/refs%2Fpr%2F1", Address("org/name", "refs/pr/1")),
        ("https://huggingface.co/org/na.me/blob/v1/config.json", Address("org/na.me", "v1")),
        ("../org", None),
        ("name", None),
    ],
)
def test_addresses(text: str, expected: Address | None) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hf:name", "hf:name is not the address"),
        ("https://huggingface.co/datasets/org/name", "not the address of a model"),
        ("https://huggingface.co/org", "not the address of a model"),
        ("https://example.org/org/name", "example.org is not the hub"),
        ("https://[broken/org/name", "not the address of a model"),
    ],
)
def test_other_addresses_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_address(text)


def test_two_revisions_are_refused() -> None:
    assert Address("a/b", "v1").at("v1") == Address("a/b", "v1")
    assert Address("a/b").at("v2") == Address("a/b", "v2")
    with pytest.raises(UsageError, match=r"v1.*v2"):
        Address("a/b", "v1").at("v2")


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "chat_template.jinja",
        "additional_chat_templates/tool_use.jinja",
        "tokenizer.model",
        "qwen.tiktoken",
        "merges.txt",
        "LICENSE",
        "LICENSE.txt",
        "README.md",
    ],
)
def test_side_files(name: str) -> None:
    assert is_side_file(name, 10)
    assert not is_side_file(name, MAX_JSON_BYTES + 1)


@pytest.mark.parametrize(
    "name",
    ["modeling.py", "LICENSE.py", "onnx/config.json", "original/params.json", "a.bin", "logo.png"],
)
def test_other_files_are_left(name: str) -> None:
    assert not is_side_file(name, 10)


def test_weights_are_those_of_the_index_and_heads_beside_it() -> None:
    names = ["a.safetensors", "consolidated.safetensors", "model.safetensors", "sub/x.safetensors"]
    names += ["mtp/head.safetensors", "model-mtp-1.safetensors", "onnx/y.safetensors"]
    heads = ("mtp/head.safetensors", "model-mtp-1.safetensors")
    assert set(model_weights(names, {"a.safetensors", "sub/x.safetensors"})) == {
        "a.safetensors",
        "sub/x.safetensors",
        *heads,
    }
    assert set(model_weights(names, {"stale.safetensors"})) == {"model.safetensors", *heads}
    assert set(visible_weights(names, {"sub/x.safetensors"})) == set(names) - {"onnx/y.safetensors"}


@pytest.mark.parametrize(("name", "expected"), [("x.gguf", True), ("sub/x.gguf", False)])
def test_weights_in_other_formats_are_noticed_at_the_root(name: str, expected: bool) -> None:
    assert is_other_format(name) is expected
