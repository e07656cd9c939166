"""Inspection of the text side: tokenizer, chat template, end tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.contracts.tokenizer_files import find_chat_template
from tests.support.header_models import config_of, mimo_head_names, trunk_names, write_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path, config_of("mimo"), trunk_names(2) + mimo_head_names())


def put(folder: Path, **files: Any) -> Inspection:
    """Write JSON files (`a__b` is `a.b`) and inspect."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return inspect_folder(folder)


def test_bare_folder_runs_and_says_what_it_lacks(folder: Path) -> None:
    found = inspect_folder(folder)
    assert found.can_run
    assert not found.has_tokenizer
    assert not found.has_chat_template
    assert found.eos_token_ids == ()
    assert len(found.warnings) == 3


@pytest.mark.parametrize(
    ("files", "suffices"),
    [
        (["tokenizer.json"], True),
        (["tokenizer.model"], True),
        (["vocab.json", "merges.txt"], True),
        (["tiktoken.model"], True),
        (["vocab.json"], False),
        (["tokenizer_config.json"], False),
        (["special_tokens_map.json"], False),
    ],
)
def test_files_that_make_a_tokenizer(folder: Path, files: list[str], suffices: bool) -> None:
    for name in files:
        (folder / name).write_text("{}")
    assert inspect_folder(folder).has_tokenizer is suffices


def test_tokenizer_that_needs_code_of_the_repository_is_none(folder: Path) -> None:
    (folder / "tiktoken.model").touch()
    assert not put(
        folder, tokenizer_config={"auto_map": {"AutoTokenizer": ["x.T", None]}}
    ).has_tokenizer
    (folder / "tokenizer.json").write_text("{}")
    assert inspect_folder(folder).has_tokenizer


def test_template_precedence(folder: Path) -> None:
    put(folder, chat_template={"chat_template": "third"})
    third = find_chat_template(folder)
    put(folder, tokenizer_config={"chat_template": "second"})
    second = find_chat_template(folder)
    (folder / "chat_template.jinja").write_text("first")
    first = find_chat_template(folder)
    assert [(t.source, t.default) for t in (first, second, third) if t] == [
        ("chat_template.jinja", "first"),
        ("tokenizer_config.json", "second"),
        ("chat_template.json", "third"),
    ]


def test_named_templates_in_the_config(folder: Path) -> None:
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    found = put(folder, tokenizer_config={"chat_template": named})
    assert found.has_chat_template
    template = find_chat_template(folder)
    assert template is not None
    assert template.texts == {"default": "a", "tool_use": "b"}


def test_additional_templates_join_the_file_beside_them(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("rag")
    template = find_chat_template(folder)
    assert template is not None
    assert template.default == "rag"
    (folder / "chat_template.jinja").write_text("usual")
    template = find_chat_template(folder)
    assert template is not None
    assert template.texts == {"rag": "rag", "default": "usual"}
    assert template.default == "usual"


@pytest.mark.parametrize("value", ["", None, [], [{"name": "default"}], 3, {"default": "x"}])
def test_value_that_is_no_template(folder: Path, value: object) -> None:
    assert not put(folder, tokenizer_config={"chat_template": value}).has_chat_template


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
def test_broken_side_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("{")
    error = inspect_folder(folder).error
    assert isinstance(error, CorruptModelError)
    assert name in error.message


def test_template_that_is_no_text(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    error = inspect_folder(folder).error
    assert isinstance(error, CorruptModelError)
    assert "chat_template.jinja" in error.message


def test_end_tokens_of_all_sources(folder: Path) -> None:
    config = config_of("mimo", eos_token_id=1, text_config=config_of("mimo", eos_token_id=[2]))
    found = put(
        folder,
        config=config,
        generation_config={"eos_token_id": [1, 5]},
        tokenizer_config={"eos_token": "<end>"},
        tokenizer={"added_tokens": [{"id": 9, "content": "<end>"}]},
    )
    assert found.eos_token_ids == (1, 2, 5, 9)


@pytest.mark.parametrize(
    "files",
    [
        {
            "tokenizer_config": {
                "eos_token": {"content": "<end>"},
                "added_tokens_decoder": {"7": {"content": "<end>"}},
            }
        },
        {
            "special_tokens_map": {"eos_token": "<end>"},
            "tokenizer": {"added_tokens": [], "model": {"vocab": {"<end>": 7}}},
        },
    ],
)
def test_end_token_spelled_out_is_looked_up(folder: Path, files: dict[str, Any]) -> None:
    assert put(folder, **files).eos_token_ids == (7,)


@pytest.mark.parametrize("bad", [-1, 64, "2", 1.5, True, {}])
def test_value_that_is_no_token_is_reported_and_left_out(folder: Path, bad: object) -> None:
    found = put(folder, generation_config={"eos_token_id": [3, bad]})
    assert found.eos_token_ids == (3,)
    assert any("generation_config.json" in warning for warning in found.warnings)


def test_end_token_that_the_tokenizer_does_not_have(folder: Path) -> None:
    found = put(folder, tokenizer_config={"eos_token": "<end>"})
    assert any("<end>" in warning for warning in found.warnings)
