"""Which dialect a model writes: by mlx-lm's choice of parser, else by its chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import regex

from mtplx.runtime.server.output import dsml
from mtplx.runtime.server.output.blocks import BlockDialect
from mtplx.runtime.server.output.dialect import Dialect
from mtplx.runtime.server.output.json_calls import JsonDialect

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

# A call as a JSON object, name first: up to the arguments' brace, and from behind them to the object's end.
_OBJECT = r'\{\s*"name"\s*:\s*"(?P<name>NAME)"\s*,\s*"(?:arguments|parameters)"\s*:\s*\{'
_OBJECT_BEGINS = r'\s*\{\s*"(?:name|arguments|parameters|id|type|function)"\s*:'
_OBJECT_ENDS = r'\s*(?:,\s*"\w+"\s*:\s*(?:"[^"\\]*"|[\w.+-]+)\s*)*\}'
# Models close one brace too many now and then.
_ONE_BRACE_MORE = r"\s*\}"


def object_dialect(start: str, end: str) -> JsonDialect:
    """One JSON object between two markers, as Hermes and Qwen have it."""
    return JsonDialect(
        name="json",
        start=start,
        begins=_OBJECT_BEGINS,
        head=r"\s*" + _OBJECT,
        tail=(_OBJECT_ENDS, _ONE_BRACE_MORE, r"\s*" + regex.escape(end)),
        stop=end,
        whole=True,
    )


def list_dialect(start: str, end: str) -> JsonDialect:
    """A JSON list of objects behind a marker."""
    return JsonDialect(
        name="json_list",
        start=start,
        begins=r'\s*\[\s*\{\s*"name"\s*:',
        head=r"\s*\[\s*" + _OBJECT,
        tail=(_OBJECT_ENDS,),
        following=r"\s*,\s*" + _OBJECT,
        end=r"\s*\]\s*" + regex.escape(end),
        stop=end,
    )


_MISTRAL_CALL = r"\s*(?P<name>NAME)\s*(?:\[CALL_ID\]\s*(?P<id>\w+)\s*)?(?:\[ARGS\]\s*)?\{"

MISTRAL = JsonDialect(
    name="mistral",
    start="[TOOL_CALLS]",
    begins=r'\s*(?:\[\s*\{\s*"name"\s*:|NAME\s*(?:\[|\{))',
    head=rf"(?:\s*\[\s*{_OBJECT}|{_MISTRAL_CALL})",
    tail=(_OBJECT_ENDS,),
    following=rf"(?:\s*,\s*{_OBJECT}|{_MISTRAL_CALL})",
    end=r"\s*\]",
    stop="[TOOL_CALLS]",
)

_DEEPSEEK_CALL = (
    r"\s*<｜tool▁call▁begin｜>\s*(?:function\s*<｜tool▁sep｜>\s*)?(?P<name>NAME)\s*"
    r"(?:<｜tool▁sep｜>\s*)?(?:```json\s*)?\{"
)

DEEPSEEK = JsonDialect(
    name="deepseek",
    start="<｜tool▁calls▁begin｜>",
    begins=r"\s*<｜tool▁call▁begin｜>\s*(?:function\s*<｜tool▁sep｜>|NAME)",
    head=_DEEPSEEK_CALL,
    tail=(r"\s*```", r"\s*<｜tool▁call▁end｜>"),
    following=_DEEPSEEK_CALL,
    end=r"\s*<｜tool▁calls▁end｜>",
    stop="<｜tool▁call▁end｜>",
)

_KIMI_CALL = (
    r"\s*<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>NAME):\d+)\s*"
    r"<\|tool_call_argument_begin\|>\s*\{"
)

KIMI_K2 = JsonDialect(
    name="kimi_k2",
    start="<|tool_calls_section_begin|>",
    begins=r"\s*<\|tool_call_begin\|>",
    head=_KIMI_CALL,
    tail=(r"\s*<\|tool_call_end\|>",),
    following=_KIMI_CALL,
    end=r"\s*<\|tool_calls_section_end\|>",
    stop="<|tool_call_end|>",
)

LLAMA = JsonDialect(
    name="llama",
    start="<|python_tag|>",
    begins=r'\s*\{\s*"name"\s*:\s*"NAME"',
    head=r"\s*" + _OBJECT,
    tail=(_OBJECT_ENDS,),
    following=r"\s*;\s*" + _OBJECT,
    opens_at_start=True,
)

DSML = BlockDialect(
    name="dsml",
    start=dsml.START,
    end=dsml.END,
    parse=dsml.parse_dsml,
    begins=rf'\s*<{dsml.MARK}invoke\s+name="NAME"',
    closers=(dsml.CLOSER,),
)

BLOCKS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "qwen3_coder": (r"\s*<function=NAME\s*>", ("</function>",)),
    "glm47": (r'\s*(?:NAME\s*(?:<|\{)|\{\s*")', ("</arg_value>", "}")),
    "longcat": (r'\s*(?:NAME\s*<longcat_arg_key>|\{\s*")', ("</longcat_arg_value>", "}")),
    "minimax_m2": (r'\s*<invoke\s+name="?NAME"?\s*>', ("</invoke>",)),
    "minicpm5": (r"""\s*["']?NAME["']?\s*>""", ("</param>", '">', "'>")),
    "muse_spark": (r'\s*<atem:invoke\b[^>]*\bname="NAME"', ("</atem:invoke>",)),
    "kimi_k3": (r'\s*<\|open\|>call\b[^<]*\btool="NAME"', ("<|close|>call<|sep|>",)),
    "pythonic": (r"\s*\[\s*NAME\(", (")]",)),
    "gemma4": (r"\s*call:NAME\{", ("}",)),
    "function_gemma": (r"\s*call:NAME\{", ("}",)),
}
"""mlx-lm's parsers of blocks, by module: how their text begins, and what stands before a real end marker."""

# What templates write, where mlx-lm has no parser for it. The first one whose texts all occur is taken.
_BY_TEMPLATE: tuple[tuple[tuple[str, ...], Dialect], ...] = (
    (("<｜tool▁calls▁begin｜>",), DEEPSEEK),
    ((dsml.MARK,), DSML),
    (("<TOOLCALL>",), list_dialect("<TOOLCALL>", "</TOOLCALL>")),
    (("<|tool_call|>", "<|/tool_call|>"), list_dialect("<|tool_call|>", "<|/tool_call|>")),
    (("<tool_calls>", "</tool_calls>"), list_dialect("<tool_calls>", "</tool_calls>")),
    (("<tool_call>", '"arguments"'), object_dialect("<tool_call>", "</tool_call>")),
    (("<|python_tag|>",), LLAMA),
)


def find_dialect(tokenizer: TokenizerWrapper) -> Dialect | None:
    """How the model of `tokenizer` writes tool calls; None if nothing says so."""
    if tokenizer.tool_parser is not None:
        return _of_parser(tokenizer)
    settings: dict[str, Any] = getattr(tokenizer, "init_kwargs", {})
    if settings.get("chat_template_type") == "deepseek_v32":
        return DSML
    template = tokenizer.chat_template
    texts = list(template.values()) if isinstance(template, dict) else [template or ""]
    text = "\0".join(texts).replace('\\"', '"')
    return next((d for needles, d in _BY_TEMPLATE if all(n in text for n in needles)), None)


def _of_parser(tokenizer: TokenizerWrapper) -> Dialect:
    module = tokenizer.tool_parser.__module__.rpartition(".")[2]
    start, end = tokenizer.tool_call_start, tokenizer.tool_call_end
    if module == "json_tools":
        return object_dialect(start, end)
    if module == "mistral":
        return MISTRAL
    if module == "kimi_k2":
        return KIMI_K2
    begins, closers = BLOCKS.get(module, ("", ()))
    return BlockDialect(
        name=module,
        start=start,
        end=end,
        parse=tokenizer.tool_parser,
        begins=begins,
        closers=closers,
    )
