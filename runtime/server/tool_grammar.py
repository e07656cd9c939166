"""Grammars for tool calls, in the dialect that the model writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.server.lark import Lark, json_rule
from mtplx.runtime.server.output.blocks import BlockDialect
from mtplx.runtime.server.output.dialect import Dialect
from mtplx.runtime.server.output.json_calls import JsonDialect

_ANY_OBJECT = {"type": "object"}
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
# Keywords that say nothing about the value, so that free text may have them.
_ANNOTATIONS = frozenset({"type", "title", "description", "default", "examples"})
_JSON_TYPES = frozenset({"integer", "number", "boolean", "object", "array"})


def has_grammar(dialect: Dialect) -> bool:
    """Whether calls of this dialect can be held by a grammar."""
    return dialect.name in _WRITERS


def is_strict(tool: Mapping[str, Any]) -> bool:
    """Whether every call of this tool must fit its schema."""
    return bool(tool["function"].get("strict"))


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """The calls that an answer may have: of `tools`, one or with `many` several. `template` is the model's."""

    dialect: Dialect
    tools: Sequence[Mapping[str, Any]]
    lark: Lark
    template: str
    many: bool
    follows_text: bool = False

    def rules(self) -> str:
        """Rules for `calls`."""
        return _WRITERS[self.dialect.name](self)

    def rules_between_text(self) -> str:
        """Rules for `answer`: any text with calls in it; the start marker always begins a call.

        Calls of tools that are not strict have any arguments.

        Raises InvalidRequestError where calls can begin without a marker.
        """
        if self.dialect.opens_at_start:
            raise InvalidRequestError(
                "tools: this model writes calls without a marker, so strict ones can't be told from text.",
                key="tools",
                hint='Leave out "strict", or use tool_choice "required".',
            )
        marked = replace(self, follows_text=True)
        more = "*" if self.many else "?"
        text = self.lark.before(self.dialect.start, "text_and_marker", "TEXT")
        return f"answer: calls{more} TEXT?\n{text}{marked.rules()}"

    @property
    def start(self) -> str:
        """The dialect's first marker as a terminal, with the text before it where there may be some."""
        return "text_and_marker" if self.follows_text else self.lark.text(self.dialect.start)

    def text(self, text: str) -> str:
        """Exactly this text as a terminal."""
        return self.start if text == self.dialect.start else self.lark.text(text)

    @property
    def end(self) -> str:
        """The dialect's last marker as a terminal."""
        dialect = self.dialect
        if isinstance(dialect, BlockDialect):
            return self.lark.text(dialect.end)
        return self.lark.text(dialect.stop) if isinstance(dialect, JsonDialect) else ""

    def written(
        self, write: _Body, *, around: tuple[str, str] = ("", ""), between: str = ""
    ) -> str:
        """`calls` as one or more calls; `write(n, tool)` gives the body of one and the rules that it needs."""
        # Between texts, calls with a marker each follow one another by themselves.
        has_more = self.many and not (self.follows_text and not around[0])
        more = f" ({between} call)*" if has_more else ""
        lines = [
            f"calls: {around[0]} call{more} {around[1]}",
            "call: " + " | ".join(f"call_{n}" for n in range(len(self.tools))),
        ]
        for n, tool in enumerate(self.tools):
            body, *needed = write(n, tool)
            lines += [f"call_{n}: {body}", *needed]
        return "\n".join(lines) + "\n"

    def with_json(self, before: Callable[[str], Sequence[str]], after: Sequence[str]) -> _Body:
        """Bodies whose arguments are JSON between texts; `before` is given the name of the tool."""

        def write(n: int, tool: Mapping[str, Any]) -> Iterator[str]:
            opening = [self.text(text) for text in before(tool["function"]["name"])]
            closing = [self.text(text) for text in after]
            yield " ".join([*opening, f"arguments_{n}", *closing])
            yield f"arguments_{n}: {json_rule(self.parameters(tool))}"

        return write

    def is_free(self, tool: Mapping[str, Any]) -> bool:
        """Whether any arguments will do."""
        return self.follows_text and not is_strict(tool)

    def parameters(self, tool: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema of the arguments as JSON; a function without one takes none."""
        if self.is_free(tool):
            return _ANY_OBJECT
        return {**_ANY_OBJECT, **(tool["function"].get("parameters") or _NO_PARAMETERS)}


_Body = Callable[[int, Mapping[str, Any]], Iterator[str]]


def _objects(calls: CallGrammar) -> str:
    """One object between the markers, and more of them behind line breaks."""
    start, end = calls.dialect.start, _last_marker(calls.dialect)
    body = calls.with_json(lambda name: (start, "\n" + _head(name)), ("}\n", end))
    return calls.written(body, between=calls.lark.text("\n"))


def _lists(calls: CallGrammar) -> str:
    """A list of objects between the markers."""
    lark = calls.lark
    closing = " ".join([lark.text("]"), *([calls.end] if calls.dialect.name != "mistral" else [])])
    body = calls.with_json(lambda name: (_head(name),), ("}",))
    return calls.written(
        body, around=(f"{calls.start} {lark.text('[')}", closing), between=lark.text(", ")
    )


def _mistral(calls: CallGrammar) -> str:
    """A list behind the marker, or since 2025 each call behind a marker of its own."""
    if "[ARGS]" not in calls.template:
        return _lists(calls)
    start = calls.dialect.start
    return calls.written(calls.with_json(lambda name: (start, name, "[ARGS]"), ()))


def _deepseek(calls: CallGrammar) -> str:
    """A section of calls; V3 fences the arguments, V3.1 does not."""
    separator = "<｜tool▁sep｜>"

    def before(name: str) -> Sequence[str]:
        if "```json" in calls.template:
            return ("<｜tool▁call▁begin｜>", "function", separator, f"{name}\n```json\n")
        return ("<｜tool▁call▁begin｜>", name, separator)

    fence = ("\n```",) if "```json" in calls.template else ()
    body = calls.with_json(before, (*fence, "<｜tool▁call▁end｜>"))
    around = (calls.start, calls.lark.text("<｜tool▁calls▁end｜>"))
    return calls.written(body, around=around, between=calls.lark.text("\n") if fence else "")


def _kimi_k2(calls: CallGrammar) -> str:
    """A section of calls that are numbered."""
    lark = calls.lark

    def write(n: int, tool: Mapping[str, Any]) -> Iterator[str]:
        name = lark.text(f"functions.{tool['function']['name']}:")
        begin, middle = lark.text("<|tool_call_begin|>"), lark.text("<|tool_call_argument_begin|>")
        yield f"{begin} {name} /[0-9]+/ {middle} arguments_{n} {lark.text('<|tool_call_end|>')}"
        yield f"arguments_{n}: {json_rule(calls.parameters(tool))}"

    return calls.written(write, around=(calls.start, lark.text("<|tool_calls_section_end|>")))


def _llama(calls: CallGrammar) -> str:
    """One object, or several with semicolons between them."""
    body = calls.with_json(lambda name: (_head(name, "parameters"),), ("}",))
    return calls.written(body, between=calls.lark.text("; "))


def _qwen3_coder(calls: CallGrammar) -> str:
    """`<function=f>` with a `<parameter=p>` for each argument, values in lines of their own."""

    def write(n: int, tool: Mapping[str, Any]) -> Iterator[str]:
        name = tool["function"]["name"]
        end = "\n</parameter>\n"
        yield (
            f"{calls.start} {calls.lark.text(f'{chr(10)}<function={name}>{chr(10)}')} parameters_{n} "
            f"{calls.lark.text(f'</function>{chr(10)}')} {calls.end}"
        )
        yield from _parameter_rules(calls, n, tool, lambda key: (f"<parameter={key}>\n",), (end,))

    return calls.written(write, between=calls.lark.text("\n"))


def _glm(calls: CallGrammar) -> str:
    """The name, then an `<arg_key>` and an `<arg_value>` for each argument."""

    def write(n: int, tool: Mapping[str, Any]) -> Iterator[str]:
        name = calls.lark.text(tool["function"]["name"] + "\n")
        yield f"{calls.start} {name} parameters_{n} {calls.end}"
        yield from _parameter_rules(
            calls,
            n,
            tool,
            lambda key: ("<arg_key>", key, "</arg_key>", "\n", "<arg_value>"),
            ("</arg_value>", "\n"),
        )

    return calls.written(write, between=calls.lark.text("\n"))


def _parameter_rules(
    calls: CallGrammar,
    n: int,
    tool: Mapping[str, Any],
    before: Callable[[str], Sequence[str]],
    after: Sequence[str],
) -> Iterator[str]:
    """The rule `parameters_n` and one for each parameter: required ones must come, all in the order of the schema."""
    lark, is_free = calls.lark, calls.is_free(tool)
    schema: Mapping[str, Any] = tool["function"].get("parameters") or _NO_PARAMETERS
    required = schema.get("required", [])
    properties: Mapping[str, Any] = schema.get("properties", {})
    names = {key: f"parameter_{n}_{at}" for at, key in enumerate(properties)}
    if not names:
        yield f'parameters_{n}: ""'
    elif is_free:
        yield f"parameters_{n}: ({' | '.join(names.values())})*"
    else:
        parts = [rule if key in required else f"{rule}?" for key, rule in names.items()]
        yield f"parameters_{n}: {' '.join(parts)}"
    for key, rule in names.items():
        opening = " ".join(lark.text(text) for text in before(key))
        value = None if is_free else _value(properties[key], schema)
        if value is None:
            rest = " ".join(lark.text(text) for text in after[1:])
            yield f"{rule}: {opening} {rule}_value {rest}"
            yield lark.until(after[0], f"{rule}_value").rstrip("\n")
        else:
            closing = " ".join(lark.text(text) for text in after)
            options = " | ".join(
                lark.text(item) if isinstance(item, str) else json_rule(item) for item in value
            )
            yield f"{rule}: {opening} ({options}) {closing}"


def _value(schema: Any, root: Mapping[str, Any]) -> list[str | Mapping[str, Any]] | None:
    """What a parameter may be: texts or JSON of a schema; None for any text.

    Raises InvalidRequestError for text that is bound to a pattern or a length, and for types that depend.
    """
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind == "string":
        if isinstance(schema.get("enum"), list) and set(schema) <= _ANNOTATIONS | {"enum"}:
            return [str(item) for item in schema["enum"]]
        if set(schema) <= _ANNOTATIONS:
            return None
    elif kind in _JSON_TYPES:
        shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
        return [{**shared, **schema}]
    raise InvalidRequestError(
        f"tools: the parameter schema {json.dumps(schema)[:200]} cannot be held by a grammar in this "
        "model's form of tool calls.",
        key="tools",
        hint='Give each parameter one plain type, or use tool_choice "auto".',
    )


def _head(name: str, arguments: str = "arguments") -> str:
    return f'{{"name": {json.dumps(name)}, "{arguments}": '


def _last_marker(dialect: Dialect) -> str:
    return dialect.stop if isinstance(dialect, JsonDialect) else ""


_WRITERS: Mapping[str, Callable[[CallGrammar], str]] = {
    "json": _objects,
    "json_list": _lists,
    "mistral": _mistral,
    "deepseek": _deepseek,
    "kimi_k2": _kimi_k2,
    "llama": _llama,
    "qwen3_coder": _qwen3_coder,
    "glm47": _glm,
}
