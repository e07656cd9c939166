"""Tool calls are found in every dialect, the same for every split of the text, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mlx_lm.tool_parsers import gemma4, glm47, longcat, minimax_m2, pythonic, qwen3_coder

from mtplx.runtime.server.output import dialects, dsml
from mtplx.runtime.server.output.blocks import BlockDialect
from mtplx.runtime.server.output.calls import MAX_MALFORMED, CallScanner
from mtplx.runtime.server.output.dialect import Dialect
from mtplx.runtime.server.output.json_calls import JsonDialect
from mtplx.runtime.server.output.parser import OutputParser
from mtplx.runtime.server.output.pieces import Consumed, Piece, Reasoning, Text
from mtplx.runtime.server.output.reasoning import ReasoningMarkers, ReasoningSplitter
from mtplx.runtime.server.parts import TextPart, ToolArgumentsPart
from tests.unit.server.chat_models import TOOLS
from tests.unit.server.outputs import Call, Seen, collect, split

MARKERS = ReasoningMarkers("<think>", "</think>")
HERMES = dialects.object_dialect("<tool_call>", "</tool_call>")
LIST = dialects.list_dialect("<TOOLCALL>", "</TOOLCALL>")


def block(module: Any) -> BlockDialect:
    name = module.__name__.rpartition(".")[2]
    begins, closers = dialects.BLOCKS[name]
    return BlockDialect(
        name=name,
        start=module.tool_call_start,
        end=module.tool_call_end,
        parse=module.parse_tool_call,
        begins=begins,
        closers=closers,
    )


QWEN3_CODER, GLM, MINIMAX = block(qwen3_coder), block(glm47), block(minimax_m2)
D = dsml.MARK

# Two calls each, as the model writes them: get_weather(city="Oslo") and add(a=1, b=2).
WRITTEN: dict[str, tuple[Dialect, str]] = {
    "hermes": (
        HERMES,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
    ),
    "hermes, other orders": (
        HERMES,
        '<tool_call>{"arguments": {"city": "Oslo"}, "name": "get_weather"}</tool_call>'
        '<tool_call>{"id": "x1", "name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}</tool_call>',
    ),
    "hermes, nested and with more keys": (
        HERMES,
        '<tool_call>{"type": "function", "function": {"name": "get_weather", "arguments": '
        '{"city": "Oslo"}}}</tool_call> <tool_call>{"name": "add", "parameters": {"a": 1, "b": 2}, '
        '"id": "7"}}</tool_call>',
    ),
    "list": (
        LIST,
        '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Oslo"}}, '
        '{"name": "add", "arguments": {"a": 1, "b": 2}}]</TOOLCALL>',
    ),
    "mistral list": (
        dialects.MISTRAL,
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "abcdefghi"}, '
        '{"name": "add", "arguments": {"a": 1, "b": 2}}]',
    ),
    "mistral": (
        dialects.MISTRAL,
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]add[CALL_ID]q1w2e3r4t[ARGS]'
        '{"a": 1, "b": 2}',
    ),
    "deepseek v3": (
        dialects.DEEPSEEK,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Oslo"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n'
        '{"a": 1, "b": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "deepseek v3.1": (
        dialects.DEEPSEEK,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"}'
        '<｜tool▁call▁end｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1, "b": 2}<｜tool▁call▁end｜>'
        "<｜tool▁calls▁end｜>",
    ),
    "deepseek v3.2": (
        dialects.DSML,
        f'<{D}function_calls>\n<{D}invoke name="get_weather">\n<{D}parameter name="city" '
        f'string="true">Oslo</{D}parameter>\n</{D}invoke>\n<{D}invoke name="add">\n<{D}parameter '
        f'name="a" string="false">1</{D}parameter>\n<{D}parameter name="b" string="false">2'
        f"</{D}parameter>\n</{D}invoke>\n</{D}function_calls>",
    ),
    "kimi k2": (
        dialects.KIMI_K2,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|><|tool_call_begin|>functions.add:1'
        '<|tool_call_argument_begin|>{"a": 1, "b": 2}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    "llama": (
        dialects.LLAMA,
        '{"name": "get_weather", "parameters": {"city": "Oslo"}}; '
        '{"name": "add", "parameters": {"a": 1, "b": 2}}',
    ),
    "qwen3 coder": (
        QWEN3_CODER,
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n"
        "</tool_call>\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n"
        "</parameter>\n</function>\n</tool_call>",
    ),
    "glm": (
        GLM,
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>\n"
        "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n"
        "<arg_value>2</arg_value>\n</tool_call>",
    ),
    "minimax": (
        MINIMAX,
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n'
        '</invoke>\n<invoke name="add">\n<parameter name="a">1</parameter>\n<parameter name="b">2'
        "</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    "longcat": (
        block(longcat),
        "<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Oslo"
        "</longcat_arg_value>\n</longcat_tool_call><longcat_tool_call>add\n<longcat_arg_key>a"
        "</longcat_arg_key>\n<longcat_arg_value>1</longcat_arg_value>\n<longcat_arg_key>b</longcat_arg_key>"
        "\n<longcat_arg_value>2</longcat_arg_value>\n</longcat_tool_call>",
    ),
    "pythonic": (
        block(pythonic),
        '<|tool_call_start|>[get_weather(city="Oslo"), add(a=1, b=2)]<|tool_call_end|>',
    ),
    "gemma": (
        block(gemma4),
        '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>}<tool_call|><|tool_call>call:add{a:1,b:2}'
        "<tool_call|>",
    ),
}


def parser(dialect: Dialect, *, max_calls: int | None = None, begun: bool = False) -> OutputParser:
    return OutputParser(
        ReasoningSplitter(MARKERS, has_begun=begun),
        CallScanner(dialect, TOOLS, max_calls=max_calls),
    )


def seen(dialect: Dialect, text: str, **options: Any) -> Seen:
    """What came of `text`, given whole; given a character at a time it must be the same."""
    whole = collect(parser(dialect, **options), [text])
    assert collect(parser(dialect, **options), text) == whole
    return whole


@pytest.mark.parametrize("name", WRITTEN)
def test_calls_of_every_dialect_are_found(name: str) -> None:
    dialect, text = WRITTEN[name]
    got = seen(dialect, text + "\n")
    assert [(call.name, call.values) for call in got.calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("add", {"a": 1, "b": 2}),
    ]
    assert (got.text, got.malformed, got.is_finished) == ("", 0, False)
    assert len(got.consumed) == len(text) + 1


@pytest.mark.parametrize("name", sorted(WRITTEN.keys() - {"llama"}))
def test_text_around_calls_is_text_and_white_space_next_to_them_is_not(name: str) -> None:
    dialect, text = WRITTEN[name]
    got = seen(dialect, f"Let me look.\n\n{text}\nDone.\n")
    assert got.text == "Let me look.Done.\n"
    assert len(got.calls) == 2


@pytest.mark.parametrize("name", WRITTEN)
def test_without_parallel_calls_the_second_one_ends_the_answer(name: str) -> None:
    dialect, text = WRITTEN[name]
    got = seen(dialect, f"{text} and more", max_calls=1)
    assert [call.values for call in got.calls] == [{"city": "Oslo"}]
    assert (got.text, got.is_finished) == ("", True)


@pytest.mark.parametrize("name", WRITTEN)
def test_calls_in_reasoning_are_reasoning(name: str) -> None:
    dialect, text = WRITTEN[name]
    got = seen(dialect, f"{text}</think>{'' if name == 'llama' else 'So: '}{text}", begun=True)
    assert got.reasoning == text
    assert len(got.calls) == 2


@pytest.mark.parametrize("name", WRITTEN)
def test_calls_of_tools_that_were_not_offered_are_text(name: str) -> None:
    dialect, text = WRITTEN[name]
    text = text.replace("get_weather", "get_tides").replace("add", "subtract")
    got = seen(dialect, text)
    assert (got.text, got.calls) == (text, ())


def test_an_unknown_tool_counts_as_malformed() -> None:
    got = seen(HERMES, '<tool_call>{"name": "rm", "arguments": {"path": "/"}}</tool_call>')
    assert (got.calls, got.malformed) == ((), 1)


@pytest.mark.parametrize(
    "text",
    [
        "The literal token `<tool_call>` opens a call.",
        'Write `<tool_call>{"name": "add", "arguments": {}}</tool_call>` for it.',
        "<tool_call> opens a call, </tool_call> closes it.",
        "<tool_call>\n{name, arguments}\n</tool_call>",
        "<tool_call>{} and <tool_call>[1]",
        "a <tool_",
        "<<tool_call",
        "x < y\n\n  ",
    ],
)
def test_prose_about_calls_is_text(text: str) -> None:
    assert seen(HERMES, text) == Seen(text, "", (), "", 0, False)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name"',
        '<tool_call>\n{"name": "get_weather", "argum',
        '<tool_call>{"arguments": {"a": 1',
        '<tool_call>{"name": <function-name>, "arguments": <args-json-object>}</tool_call>',
        '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
    ],
)
def test_an_incomplete_or_malformed_candidate_is_text(text: str) -> None:
    got = seen(HERMES, text)
    assert (got.text, got.calls, got.consumed) == (text, (), "")
    assert got.malformed == (text != '<tool_call>{"name"')


@pytest.mark.parametrize("name", ["qwen3 coder", "glm", "minimax", "pythonic", "gemma", "longcat"])
def test_a_block_that_breaks_off_is_text(name: str) -> None:
    dialect, text = WRITTEN[name]
    cut = text[: text.index("Oslo")]
    got = seen(dialect, cut)
    assert (got.text, got.calls, got.malformed) == (cut, (), 1)


def test_a_call_is_found_behind_a_candidate_that_was_none() -> None:
    good = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    bad = '<tool_call>{"name": "x"</tool_call> '
    got = seen(HERMES, f"Not <tool_call> but {bad}{good}")
    assert got.calls == (Call("add", '{"a": 1, "b": 2}'),)
    assert got.text == f"Not <tool_call> but {bad}".rstrip()


def test_arguments_come_as_they_are_written() -> None:
    made = parser(HERMES)
    assert made.feed('<tool_call>{"name": "write_file", "arguments": {"path": "a') != []
    deltas = [made.feed(piece) for piece in ('.py", "content": "x', " = 1\\n", '"}', "}</tool")]
    assert deltas == [
        [ToolArgumentsPart(0, '.py", "content": "x')],
        [ToolArgumentsPart(0, " = 1\\n")],
        [ToolArgumentsPart(0, '"}')],
        [],
    ]


def test_arguments_keep_the_bytes_that_the_model_wrote() -> None:
    arguments = '{ "path":"a","content" : "</tool_call> \\u00e9 {[ é ' + "🙂" + '" }'
    got = seen(HERMES, f'<tool_call>{{"name": "write_file", "arguments": {arguments}}}</tool_call>')
    assert got.calls == (Call("write_file", arguments),)


@pytest.mark.parametrize("dialect", [HERMES, QWEN3_CODER], ids=["hermes", "qwen3 coder"])
def test_long_arguments_come_whole_with_the_text_behind_them(dialect: Dialect) -> None:
    content = "x = 1; " * 1000
    text = {
        "json": f'<tool_call>{{"name": "write_file", "arguments": {{"content": "{content}"}}}}</tool_call>',
        "qwen3_coder": f"<tool_call>\n<function=write_file>\n<parameter=content>\n{content}\n</parameter>\n"
        "</function>\n</tool_call>",
    }
    got = seen(dialect, text[dialect.name] + " Done.")
    assert got.calls[0].values == {"content": content}
    assert got.text == "Done."


def test_a_call_that_breaks_off_in_its_arguments_keeps_what_it_had() -> None:
    got = seen(HERMES, '<tool_call>{"name": "get_weather", "arguments": {"city": "Par')
    assert got.calls == (Call("get_weather", '{"city": "Par'),)
    assert (got.text, got.malformed) == ("", 1)


def test_broken_arguments_reach_to_the_marker_behind_them() -> None:
    got = seen(
        HERMES, '<tool_call>{"name": "add", "arguments": {"a": [1}, "b": 2}}</tool_call> So.'
    )
    assert got.calls == (Call("add", '{"a": [1}, "b": 2}}'),)
    assert (got.text, got.malformed) == ("So.", 1)


def test_arguments_that_are_balanced_and_no_json_count_as_malformed() -> None:
    got = seen(HERMES, '<tool_call>{"name": "add", "arguments": {"a": one}}</tool_call>')
    assert (got.calls, got.malformed) == ((Call("add", '{"a": one}'),), 1)


def test_a_missing_end_marker_does_not_swallow_the_text_behind() -> None:
    got = seen(HERMES, '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}\nThat is all.')
    assert (got.text, len(got.calls)) == ("That is all.", 1)


def test_a_value_may_hold_the_end_marker() -> None:
    inside = "Use </tool_call> to end."
    got = seen(
        QWEN3_CODER,
        "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n"
        f"{inside}\n</parameter>\n</function>\n</tool_call>",
    )
    assert got.calls[0].values == {"path": "a", "content": inside}


def test_values_have_the_types_of_the_schema() -> None:
    text = (
        "<tool_call>\n<function=write_file>\n<parameter=path>\n12\n</parameter>\n<parameter=content>\n"
        '{"a": 1}\n</parameter>\n</function>\n</tool_call>'
    )
    assert seen(QWEN3_CODER, text).calls[0].values == {"path": "12", "content": '{"a": 1}'}


def test_a_call_without_arguments_has_an_empty_object() -> None:
    got = seen(HERMES, '<tool_call>{"name": "add"}</tool_call>')
    assert got.calls == (Call("add", "{}"),)


def test_json_that_an_answer_begins_with_is_a_call_only_with_an_offered_name() -> None:
    assert seen(dialects.LLAMA, '{"name": "Ada", "parameters": {}}').calls == ()
    assert seen(dialects.LLAMA, 'See {"name": "add", "parameters": {}}').calls == ()
    assert seen(dialects.LLAMA, 'See <|python_tag|>{"name": "add", "parameters": {}}').calls != ()


def test_after_many_malformed_candidates_the_rest_is_text() -> None:
    bad = '<tool_call>{"name": "x", "arguments": {}}</tool_call>'
    good = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    assert len(seen(HERMES, bad * (MAX_MALFORMED - 1) + good).calls) == 1
    got = seen(HERMES, bad * MAX_MALFORMED + good)
    assert (got.calls, got.text) == ((), bad * MAX_MALFORMED + good)


def test_text_without_a_marker_is_not_delayed() -> None:
    made = parser(HERMES)
    words = ["Hello", " there,", " it is", " <b>fine</b>"]
    assert [made.feed(word) for word in words] == [[TextPart(word)] for word in words]


FRAGMENTS = [
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "a}\\"]"}}\n</tool_call>',
    '<tool_call>{"name": "add", "arguments": {"a": 1',
    '<tool_call>{"arguments": {"a": 1}, "name": "add"}',
    "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=add>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 2}<｜tool▁call▁end｜>',
    "<｜tool▁calls▁end｜>",
    '[TOOL_CALLS]add[ARGS]{"a": 3}',
    '[TOOL_CALLS][{"name": "add", "arguments": {"a": [4]}}',
    ', {"name": "add", "arguments": {}}',
    '{"name": "add", "parameters": {}}',
    "<tool_call>",
    "</tool_call>",
    "</function>",
    "</think>",
    "<think>",
    "`",
    "}",
    "]",
    '"',
    "\n",
    "  ",
    "<",
    "text",
    "; ",
]
LAW = [HERMES, LIST, dialects.MISTRAL, dialects.DEEPSEEK, dialects.LLAMA, QWEN3_CODER, GLM]


@given(
    st.sampled_from(LAW),
    st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join),
    st.lists(st.integers(0, 2000), max_size=10),
    st.sampled_from([None, 1]),
)
@example(HERMES, FRAGMENTS[0] + "}" + FRAGMENTS[0], [72], None)
def test_every_split_gives_the_same_and_every_character_once(
    dialect: Dialect, text: str, cuts: list[int], max_calls: int | None
) -> None:
    whole = collect(parser(dialect, max_calls=max_calls), [text])
    assert collect(parser(dialect, max_calls=max_calls), split(text, cuts)) == whole
    assert collect(parser(dialect, max_calls=max_calls), text) == whole
    splitter = ReasoningSplitter(MARKERS, has_begun=False)
    scanner = CallScanner(dialect, TOOLS, max_calls=max_calls)
    pieces: list[Piece] = []
    for part in [*split(text, cuts), None]:
        for piece in splitter.finish() if part is None else splitter.feed(part):
            pieces += scanner.feed(piece.text) if isinstance(piece, Text) else [piece]
    pieces += scanner.finish()
    texts = [piece.text for piece in pieces if isinstance(piece, Text | Reasoning | Consumed)]
    assert "".join(texts) == text


def test_the_dialect_is_a_value() -> None:
    assert isinstance(HERMES, JsonDialect)
    assert dialects.object_dialect("<tool_call>", "</tool_call>") == HERMES
