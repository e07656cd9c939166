"""The parser of an answer is chosen by the model's tokenizer and template, and by what the request offers."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from mtplx.runtime.loading.tokenizer import load_tokenizer
from mtplx.runtime.server.output.dialects import find_dialect
from mtplx.runtime.server.output.parser import make_parser
from mtplx.runtime.server.output.reasoning import reasoning_markers
from mtplx.runtime.server.parts import ToolCallPart
from tests.support.checkpoints import require_checkpoint
from tests.unit.server.chat_models import MISTRAL, QWEN3, TEMPLATES, TOOLS, make_model
from tests.unit.server.outputs import collect

if TYPE_CHECKING:
    from pathlib import Path

    from mtplx.runtime.server.served import ServedModel

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    """A model that reasons and calls tools."""
    return make_model(tmp_path_factory.mktemp("m") / "qwen3", QWEN3)


@pytest.mark.parametrize(
    ("template", "dialect"),
    [
        (TEMPLATES["chatml"], None),
        (TEMPLATES["qwen3"], "json"),
        (TEMPLATES["qwen3"].replace("f.name", "tool_call.name"), "json"),
        (TEMPLATES["qwen3_coder"], "qwen3_coder"),
        (TEMPLATES["glm"], "glm47"),
        (TEMPLATES["deepseek"], "deepseek"),
        (TEMPLATES["mistral"], "mistral"),
        (TEMPLATES["llama"], "llama"),
        ("{{ '<TOOLCALL>' }}", "json_list"),
        ("{{ '<｜DSML｜function_calls>' }}", "dsml"),
        ("{{ '<|tool_calls_section_begin|>' }}", "kimi_k2"),
        ("{{ '<minimax:tool_call>' }}", "minimax_m2"),
        ("{{ '<longcat_tool_call>' }}", "longcat"),
        ("{{ '<|tool_call_start|>' }}", "pythonic"),
    ],
)
def test_the_dialect_comes_from_the_template(
    template: str, dialect: str | None, tmp_path: Path
) -> None:
    found = find_dialect(make_model(tmp_path / "m", template).tokenizer)
    assert (found and found.name) == dialect


def test_several_templates_of_one_model_are_all_looked_at(tmp_path: Path) -> None:
    make_model(tmp_path / "m", None)
    path = tmp_path / "m" / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    named = [{"name": "default", "template": "{{ 1 }}"}, {"name": "tool_use", "template": QWEN3}]
    path.write_text(json.dumps({**settings, "chat_template": named}))
    tokenizer = load_tokenizer(tmp_path / "m", ())
    found = find_dialect(tokenizer)
    assert found is not None
    assert found.name == "json"
    assert reasoning_markers(tokenizer) == ("<think>", "</think>")


def test_the_trained_checkpoints_write_json(qwen3: ServedModel) -> None:
    tokenizer = load_tokenizer(require_checkpoint("qwen3_5"), ())
    model = dataclasses.replace(qwen3, tokenizer=tokenizer)
    got = collect(make_parser(model, TOOLS, "auto", False), [CALL])
    assert [call.values for call in got.calls] == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(("tools", "choice"), [([], "auto"), (TOOLS, "none")])
def test_nothing_is_parsed_where_no_call_can_be_meant(
    tools: list[dict[str, object]], choice: str, qwen3: ServedModel
) -> None:
    parser = make_parser(qwen3, tools, choice, False)
    got = collect(parser, [CALL])
    assert (got.text, got.calls, got.malformed) == (CALL, (), 0)
    assert not parser.has_tool_calls


def test_a_second_call_ends_an_answer_that_may_have_one(qwen3: ServedModel) -> None:
    parser = make_parser(qwen3, TOOLS, None, False, parallel_tool_calls=False)
    states = []
    for text in (CALL, CALL[:50]):
        parser.feed(text)
        states.append((parser.has_tool_calls, parser.is_finished))
    assert states == [(True, False), (True, True)]
    assert parser.feed("more") == parser.finish() == []


def test_reasoning_is_known_while_it_lasts(qwen3: ServedModel) -> None:
    parser = make_parser(qwen3, TOOLS, "auto", True)
    states = []
    for text in ("well", "</think>"):
        parser.feed(text)
        states.append(parser.is_reasoning)
    assert states == [True, False]
    assert parser.reasoning_characters == 4


def test_call_ids_have_the_form_that_the_template_takes(tmp_path: Path, qwen3: ServedModel) -> None:
    mistral = make_model(tmp_path / "mistral", MISTRAL)
    written = '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add[CALL_ID]abc123def[ARGS]{"a": 2}'
    parts = make_parser(mistral, TOOLS, "auto", False).feed(written)
    ids = [part.id for part in parts if isinstance(part, ToolCallPart)]
    assert len(ids[0]) == 9
    assert ids[0].isalnum()
    assert ids[1] == "abc123def"
    parts = make_parser(qwen3, TOOLS, "auto", False).feed(CALL + CALL)
    ids = [part.id for part in parts if isinstance(part, ToolCallPart)]
    assert len(set(ids)) == 2
    assert all(name.startswith("call_") for name in ids)
