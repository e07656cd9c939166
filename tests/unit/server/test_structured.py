"""Answers under a grammar: always valid, whatever the model wants to write, or refused with the reason."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx.contracts.errors import InternalError, InvalidRequestError, UnsupportedModelError
from mtplx.runtime.loading.tokenizer import load_tokenizer
from mtplx.runtime.sampling.constraint import Constraint
from mtplx.runtime.server import structured
from mtplx.runtime.server.conversation import Conversation, Rendered, render
from mtplx.runtime.server.output.dialects import find_dialect
from mtplx.runtime.server.output.parser import make_parser
from mtplx.runtime.server.schema_limits import (
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    MAX_SCHEMA_PROPERTIES,
)
from mtplx.runtime.server.structured import Grammars
from tests.support.checkpoints import require_checkpoint
from tests.unit.server.chat_models import (
    ADD,
    TEMPLATES,
    TOOLS,
    VOCAB_SIZE,
    WEATHER,
    make_model,
    make_tool,
)
from tests.unit.server.outputs import Seen, collect

if TYPE_CHECKING:
    from mtplx.runtime.server.served import ServedModel

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "é"]}, "maxItems": 3},
        "home": {"$ref": "#/$defs/place"},
    },
    "required": ["name", "age", "home"],
    "additionalProperties": False,
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "known": {"type": ["boolean", "null"]}},
            "required": ["lat", "known"],
            "additionalProperties": False,
        }
    },
}


# Markers of each template as tokens: special ones, words, or none at all (then they are spelled).
CLOSING = {"qwen3_coder": b"\n</parameter>\n", "glm": b"</arg_value>"}
WITHOUT_THINKING = {"qwen3": False}
SPECIAL = {
    "qwen3": ("<think>", "</think>", "<tool_call>", "</tool_call>"),
    "deepseek": ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<think>", "</think>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
}
WORDS = {
    "qwen3_coder": ("<tool_call>", "</tool_call>", "<function="),
    "glm": ("<think>", "</think>"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ServedModel]:
    """A model for each template."""
    folder = tmp_path_factory.mktemp("models")
    return {
        name: make_model(
            folder / name, text, special=SPECIAL.get(name, ()), words=WORDS.get(name, ())
        )
        for name, text in TEMPLATES.items()
    }


@pytest.fixture(scope="module")
def grammars(models: dict[str, ServedModel]) -> dict[str, Grammars]:
    """The grammars of each model."""
    return {name: Grammars(model) for name, model in models.items()}


def json_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


def ask(**more: Any) -> Conversation:
    return Conversation(messages=[{"role": "user", "content": "a"}], **more)


def constraint(grammars: Grammars, conversation: Conversation, rendered: Rendered) -> Constraint:
    made = grammars.constraint(conversation, rendered)
    assert made is not None
    return made


def sample(
    made: Constraint,
    ends: Sequence[int],
    choose: Callable[[Any], int],
) -> list[int]:
    """Tokens of a model that takes any allowed token, up to an end token."""
    tokens: list[int] = []
    for _ in range(4000):
        mask = made.allowed([])
        assert mask is not None
        token = choose(np.flatnonzero(mask))
        made.commit([token])
        tokens.append(token)
        if token in ends:
            return tokens[:-1]
    raise AssertionError("no end within 4000 tokens")


def at_random(
    seed: int, closing: bytes = b"", *more: int, stop: float = 0.0
) -> Callable[[Any], int]:
    """Random choices that like quotes, brackets and `more`, so that texts end some day.

    Now and then they write `closing`; an end token is chosen with the probability `stop` where there is one.
    """
    rng = np.random.default_rng(seed)
    liked = [*(ord(c) for c in '"]}'), *more]
    planned: list[int] = []

    def choose(tokens: Any) -> int:
        if not planned and rng.random() < 0.2:
            planned.extend(closing)
        if planned and planned[0] in tokens:
            return planned.pop(0)
        planned.clear()
        ends = tokens[np.isin(tokens, [256, 258])]
        if ends.size and rng.random() < stop:
            return int(ends[0])
        likely = tokens[np.isin(tokens, liked)]
        pool = likely if likely.size and rng.random() < 0.3 else tokens
        return int(rng.choice(pool))

    return choose


def text_of(model: ServedModel, tokens: list[int]) -> str:
    return str(model.tokenizer.decode(tokens))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_sampled_answers_fit_the_schema(
    models: dict[str, ServedModel], grammars: dict[str, Grammars], seed: int
) -> None:
    model = models["chatml"]
    made = constraint(
        grammars["chatml"], ask(response_format=json_schema(PERSON)), Rendered(ids=[1])
    )
    text = text_of(model, sample(made, model.eos_token_ids, at_random(seed)))
    jsonschema.validate(json.loads(text), PERSON)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_a_json_object_is_one_whatever_is_in_it(
    models: dict[str, ServedModel], grammars: dict[str, Grammars], seed: int
) -> None:
    model = models["chatml"]
    made = constraint(
        grammars["chatml"], ask(response_format={"type": "json_object"}), Rendered(ids=[1])
    )
    text = text_of(model, sample(made, model.eos_token_ids, at_random(seed)))
    assert isinstance(json.loads(text), dict)


def seen(model: ServedModel, conversation: Conversation, rendered: Rendered, text: str) -> Seen:
    parser = make_parser(
        model, conversation.tools, conversation.tool_choice, rendered.starts_in_reasoning
    )
    return collect(parser, [text])


@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - {"chatml"}))
@pytest.mark.parametrize("parallel", [True, False])
def test_required_calls_are_made_in_the_dialect_of_the_model(
    name: str, parallel: bool, models: dict[str, ServedModel], grammars: dict[str, Grammars]
) -> None:
    model = models[name]
    conversation = ask(tools=TOOLS, tool_choice="required", parallel_tool_calls=parallel)
    rendered = render(conversation, model)
    for seed in range(6):
        made = constraint(grammars[name], conversation, rendered)
        text = text_of(
            model, sample(made, model.eos_token_ids, at_random(seed, CLOSING.get(name, b"")))
        )
        got = seen(model, conversation, rendered, text)
        assert got.calls, text
        assert (got.text, got.malformed) == ("", 0), text
        assert parallel or len(got.calls) == 1
        for call in got.calls:
            schema = next(t for t in TOOLS if t["function"]["name"] == call.name)
            jsonschema.validate(call.values, schema["function"]["parameters"])


@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - {"chatml"}))
def test_a_named_call_is_the_only_one_possible(
    name: str, models: dict[str, ServedModel], grammars: dict[str, Grammars]
) -> None:
    choice = {"type": "function", "function": {"name": "add"}}
    conversation = ask(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    rendered = render(conversation, models[name])
    made = constraint(grammars[name], conversation, rendered)
    tokens = sample(made, models[name].eos_token_ids, at_random(5))
    got = seen(models[name], conversation, rendered, text_of(models[name], tokens))
    assert [call.name for call in got.calls] == ["add"]


def test_the_grammar_begins_behind_reasoning_that_the_prompt_began(
    models: dict[str, ServedModel], grammars: dict[str, Grammars]
) -> None:
    model = models["qwen3"]
    conversation = ask(response_format=json_schema(PERSON))
    rendered = render(conversation, model)
    assert rendered.starts_in_reasoning
    made = constraint(grammars["qwen3"], conversation, rendered)
    thought = model.tokenizer.encode('Is {"x": ] JSON?\n', add_special_tokens=False)
    made.commit(thought)
    close = model.tokenizer.convert_tokens_to_ids("</think>")
    mask = made.allowed([])
    assert mask is not None
    assert mask[close]
    assert not mask[list(model.eos_token_ids)].any()
    made.commit([close, *model.tokenizer.encode("\n\n{", add_special_tokens=False)])
    mask = made.allowed([])
    assert mask is not None
    assert not mask[ord("x")]
    assert mask[ord('"')]


def test_a_model_that_may_reason_may_also_answer_at_once(
    models: dict[str, ServedModel], grammars: dict[str, Grammars]
) -> None:
    model = models["glm"]
    conversation = ask(response_format={"type": "json_object"})
    rendered = render(conversation, model)
    assert rendered.may_reason
    for text in ("<think>so {</think>\n{}", "{}"):
        made = constraint(grammars["glm"], conversation, rendered)
        made.commit(model.tokenizer.encode(text, add_special_tokens=False))
        assert made.allowed([]) is not None
    off = ask(response_format={"type": "json_object"}, enable_thinking=False)
    made = constraint(grammars["glm"], off, render(off, model))
    mask = made.allowed([])
    assert mask is not None
    assert np.flatnonzero(mask).tolist() == [ord("{")]


def test_a_schema_beside_tools_leaves_the_choice_between_text_and_call(
    models: dict[str, ServedModel], grammars: dict[str, Grammars]
) -> None:
    model = models["glm"]
    conversation = ask(response_format=json_schema(PERSON), tools=[ADD], enable_thinking=False)
    rendered = render(conversation, model)
    made = constraint(grammars["glm"], conversation, rendered)
    mask = made.allowed([])
    assert mask is not None
    assert {chr(token) for token in np.flatnonzero(mask)} == {"{", "<"}


def test_drafts_do_not_advance_the_grammar(
    models: dict[str, ServedModel], grammars: dict[str, Grammars]
) -> None:
    model = models["chatml"]
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    made = constraint(
        grammars["chatml"], ask(response_format=json_schema(schema)), Rendered(ids=[1])
    )
    end = model.eos_token_ids[0]
    before = made.allowed([])
    assert before is not None
    assert before.shape == (VOCAB_SIZE,)
    drafts = list(b'{"n":1}')
    for size in range(len(drafts)):
        assert made.allowed(drafts[:size]) is not None
    assert made.allowed([*b'{"x']) is None
    assert made.allowed([*b'{"', end]) is None
    at_the_end = made.allowed(drafts)
    assert at_the_end is not None
    assert set(np.flatnonzero(at_the_end)) == set(model.eos_token_ids)
    assert made.allowed([*drafts, end]) is None
    after = made.allowed([])
    assert after is not None
    assert (after == before).all()
    made.commit(drafts)
    assert made.allowed([ord(" ")]) is None
    made.commit([end])
    still = made.allowed([])
    assert still is not None
    assert set(np.flatnonzero(still)) == set(model.eos_token_ids)
    made.commit([end])


def test_a_token_against_the_grammar_is_an_error_of_ours(
    grammars: dict[str, Grammars],
) -> None:
    for tokens in ([ord("x")], [256]):
        made = constraint(
            grammars["chatml"], ask(response_format={"type": "json_object"}), Rendered(ids=[1])
        )
        with pytest.raises(InternalError, match="against the grammar"):
            made.commit(tokens)


def test_choices_of_one_request_do_not_share_their_place(
    grammars: dict[str, Grammars],
) -> None:
    conversation = ask(response_format={"type": "json_object"})
    first = constraint(grammars["chatml"], conversation, Rendered(ids=[1]))
    first.commit(list(b'{"a'))
    second = constraint(grammars["chatml"], conversation, Rendered(ids=[1]))
    mask = second.allowed([])
    assert mask is not None
    assert np.flatnonzero(mask).tolist() == [ord("{")]


def test_text_and_free_tool_choice_have_no_grammar(grammars: dict[str, Grammars]) -> None:
    for conversation in (
        ask(),
        ask(response_format={"type": "text"}),
        ask(tools=TOOLS),
        ask(tools=TOOLS, tool_choice="none"),
    ):
        assert grammars["qwen3"].constraint(conversation, Rendered(ids=[1])) is None


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "not": {}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "properties": {"a": {"if": {}, "then": {}}}}, "if"),
        ({"type": "string", "format": "license-plate"}, "license-plate"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "strin"}, "strin"),
        ({"$ref": "https://example.org/schema.json"}, "example.org"),
        ({"type": "object", "x-guidance": {"lenient": True}}, "x-guidance"),
        (False, "Unsatisfiable"),
        ("string", "expected a JSON schema"),
        (nested(MAX_SCHEMA_DEPTH + 1), "deeper"),
        (
            {"properties": {f"p{n}": {} for n in range(MAX_SCHEMA_PROPERTIES + 1)}},
            "properties",
        ),
        ({"description": "x" * MAX_SCHEMA_BYTES}, "bytes"),
    ],
)
def test_a_schema_that_no_grammar_holds_is_refused_with_the_reason(
    schema: Any, reason: str, grammars: dict[str, Grammars]
) -> None:
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        grammars["chatml"].constraint(ask(response_format=json_schema(schema)), Rendered(ids=[1]))
    assert caught.value.key == "response_format.json_schema.schema"
    assert "\n" not in caught.value.message
    assert "start:" not in caught.value.message


@pytest.mark.parametrize(
    ("wanted", "key"),
    [
        ({"type": "yaml"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {}}, "response_format.json_schema.schema"),
    ],
)
def test_a_response_format_that_is_none_is_refused(
    wanted: Mapping[str, Any], key: str, grammars: dict[str, Grammars]
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        grammars["chatml"].constraint(ask(response_format=wanted), Rendered(ids=[1]))
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("name", "more", "key"),
    [
        ("qwen3", {"tool_choice": "required"}, "tools"),
        (
            "qwen3",
            {"tools": [WEATHER], "tool_choice": {"function": {"name": "add"}}},
            "tool_choice.function.name",
        ),
        ("chatml", {"tools": [WEATHER], "tool_choice": "required"}, "tools"),
    ],
)
def test_a_call_that_can_not_be_made_is_refused(
    name: str, more: dict[str, Any], key: str, grammars: dict[str, Grammars]
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        grammars[name].constraint(ask(**more), Rendered(ids=[1]))
    assert caught.value.key == key


def strict(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "strict": True}}


@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - {"chatml", "llama"}))
def test_calls_of_strict_tools_fit_their_schema_and_text_stays_free(
    name: str, models: dict[str, ServedModel], grammars: dict[str, Grammars]
) -> None:
    model = models[name]
    # No grammar could hold the second one, and none has to.
    free = make_tool("free", p="string")
    free["function"]["parameters"]["properties"]["p"] = {"type": "string", "not": {"const": ""}}
    conversation = ask(tools=[strict(ADD), free], enable_thinking=WITHOUT_THINKING.get(name))
    rendered = render(conversation, model)
    dialect = find_dialect(model.tokenizer)
    assert dialect is not None
    opening = model.tokenizer.encode(f"So: {dialect.start}", add_special_tokens=False)
    called = set()
    for seed in range(6):
        made = constraint(grammars[name], conversation, rendered)
        made.commit(opening)
        choose = at_random(seed, CLOSING.get(name, b""), stop=0.2)
        text = text_of(model, [*opening, *sample(made, model.eos_token_ids, choose)])
        got = seen(model, conversation, rendered, text)
        assert got.text.startswith("So:"), text
        assert got.calls, text
        for call in got.calls:
            called.add(call.name)
            if call.name == "add":
                jsonschema.validate(call.values, ADD["function"]["parameters"])
    assert called == {"add", "free"}


def test_strict_tools_without_a_marker_are_refused(grammars: dict[str, Grammars]) -> None:
    with pytest.raises(InvalidRequestError, match="strict"):
        grammars["llama"].constraint(ask(tools=[strict(ADD)]), Rendered(ids=[1]))


def test_a_trained_vocabulary_gives_valid_answers_too(models: dict[str, ServedModel]) -> None:
    tokenizer = load_tokenizer(require_checkpoint("qwen3_5"), ())
    ends = tuple(tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))
    model = dataclasses.replace(
        models["qwen3"], tokenizer=tokenizer, vocab_size=8192, eos_token_ids=ends
    )
    grammars = Grammars(model)
    asked = ask(response_format=json_schema(PERSON))
    required = ask(tools=TOOLS, tool_choice="required")
    for seed in range(5):
        choose = at_random(seed, b"", tokenizer.encode('"}')[0])
        text = text_of(
            model, sample(constraint(grammars, asked, render(asked, model)), ends, choose)
        )
        jsonschema.validate(json.loads(text), PERSON)
        rendered = render(required, model)
        text = text_of(model, sample(constraint(grammars, required, rendered), ends, choose))
        assert seen(model, required, rendered, text).calls


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        (True, ""),
        ([1], ""),
        ({"type": "string"}, ""),
        ({"properties": [1]}, ".properties"),
        ({"properties": {}, "required": 5}, ".required"),
    ],
)
def test_parameters_that_describe_no_arguments_are_refused(
    parameters: Any, key: str, grammars: dict[str, Grammars]
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    for name in ("qwen3", "qwen3_coder"):
        with pytest.raises(InvalidRequestError) as caught:
            grammars[name].constraint(
                ask(tools=[ADD, tool], tool_choice="required"), Rendered(ids=[1])
            )
        assert caught.value.key == f"tools[1].function.parameters{key}"


def with_parameter(schema: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"p": schema}, "required": ["p"]}
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def test_a_tool_whose_schema_no_grammar_holds_is_refused(grammars: dict[str, Grammars]) -> None:
    for name, schema in (
        ("qwen3", {"not": {}}),
        ("qwen3_coder", {"type": "string", "pattern": "a+"}),
        ("qwen3_coder", {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
    ):
        tools = [ADD, with_parameter(schema)]
        with pytest.raises(InvalidRequestError) as caught:
            grammars[name].constraint(ask(tools=tools, tool_choice="required"), Rendered(ids=[1]))
        assert caught.value.key.startswith("tools")


def test_a_vocabulary_without_an_end_has_no_grammars(models: dict[str, ServedModel]) -> None:
    model = dataclasses.replace(models["chatml"], eos_token_ids=())
    with pytest.raises(UnsupportedModelError, match="chatml"):
        Grammars(model).constraint(ask(response_format={"type": "json_object"}), Rendered(ids=[1]))


def test_compiling_that_takes_too_long_is_given_up(
    models: dict[str, ServedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = threading.Event()

    def wait(*_: object, **__: object) -> None:
        while not slow.wait(0.01):
            pass

    monkeypatch.setattr(structured, "COMPILE_SECONDS", 0.1)
    monkeypatch.setattr(structured, "LLMatcher", type("M", (), {"grammar_from_lark": wait}))
    with pytest.raises(InvalidRequestError, match="did not end within"):
        Grammars(models["chatml"]).constraint(
            ask(response_format={"type": "json_object"}), Rendered(ids=[1])
        )


def test_masks_are_fast(grammars: dict[str, Grammars]) -> None:
    made = constraint(
        grammars["chatml"], ask(response_format=json_schema(PERSON)), Rendered(ids=[1])
    )
    made.commit(list(b'{"name": "abc'))
    began = time.perf_counter()
    for _ in range(200):
        made.allowed(list(b'def", '))
    assert time.perf_counter() - began < 1.0
