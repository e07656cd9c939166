"""Answers that a grammar holds: JSON of a schema, tool calls that must be made, and calls of strict tools.

The grammar begins where the answer does: at once, or behind the model's reasoning where the prompt has begun it. Where
the model may begin reasoning itself, it may do so first. Reasoning is any text up to the closing marker.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from mtplx.contracts.errors import InternalError, InvalidRequestError, UnsupportedModelError
from mtplx.runtime.server.bounded import OvertimeError, run_bounded
from mtplx.runtime.server.chat_template import ChatTemplate
from mtplx.runtime.server.lark import Lark, json_rule
from mtplx.runtime.server.output.dialects import find_dialect
from mtplx.runtime.server.output.reasoning import reasoning_markers
from mtplx.runtime.server.schema_limits import require_parameters, require_schema
from mtplx.runtime.server.tool_grammar import CallGrammar, has_grammar, is_strict

if TYPE_CHECKING:
    from mtplx.runtime.sampling.constraint import Constraint, Mask
    from mtplx.runtime.server.conversation import Conversation, Rendered
    from mtplx.runtime.server.served import ServedModel

COMPILE_SECONDS = 10.0
MAX_CACHED = 32
SCHEMA_KEY = "response_format.json_schema.schema"

# What a line of llguidance's message begins with that shows the grammar, and not what is wrong with it.
_QUOTED = re.compile(r"\s*(?:\d+ \||\^|$)")


class Grammars:
    """Grammars over the vocabulary of one model; safe to use from several threads.

    Compiled ones are kept, so a schema that comes again costs a copy.
    """

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()

    def constraint(self, conversation: Conversation, rendered: Rendered) -> Constraint | None:
        """What holds the answer to a conversation; None where nothing was asked for.

        It serves one choice. Takes up to COMPILE_SECONDS.

        Raises InvalidRequestError naming the key for a schema that is wrong, too large, or has keywords that a
        grammar can't hold, and for a tool choice that this model's calls have no grammar for; UnsupportedModelError
        where the tokenizer can't be read.
        """
        lark = self._answer(conversation)
        if lark is None:
            return None
        key, grammar = lark
        matcher = self._matcher(self._behind_reasoning(rendered) + grammar, key)
        return GrammarConstraint(matcher, self._model.vocab_size, self._model.eos_token_ids)

    def _answer(self, conversation: Conversation) -> tuple[str, str] | None:
        """The key that asks for a grammar, and the rules for `answer`."""
        choice = conversation.tool_choice
        tools = [] if choice == "none" else list(conversation.tools)
        schema = _schema(conversation.response_format)
        if choice == "required" or isinstance(choice, Mapping):
            calls = self._calls(conversation, _chosen(tools, choice)).rules()
            return "tools", f"answer: calls\n{calls}"
        if schema is not None:
            require_schema(schema, SCHEMA_KEY)
            text = f"json_text: {json_rule(schema)}\n"
            if not tools:
                return SCHEMA_KEY, f"answer: json_text\n{text}"
            # The schema is for the text of the answer; the model may call a tool instead.
            calls = self._calls(conversation, tools).rules()
            return SCHEMA_KEY, f"answer: json_text | calls\n{text}{calls}"
        if any(is_strict(tool) for tool in tools):
            return "tools", self._calls(conversation, tools).rules_between_text()
        return None

    def _calls(self, conversation: Conversation, tools: Sequence[Mapping[str, Any]]) -> CallGrammar:
        """The grammar of calls of `tools`."""
        for index, tool in enumerate(tools):
            key = f"tools[{index}].function.parameters"
            require_parameters(tool["function"].get("parameters") or {}, key)
        tokenizer = self._model.tokenizer
        dialect = find_dialect(tokenizer)
        if dialect is None or not has_grammar(dialect):
            raise InvalidRequestError(
                f"tools: {self._model.name} writes tool calls in a form that has no grammar here, so "
                "they can't be required, strict, or offered beside a response_format.",
                key="tools",
            )
        return CallGrammar(
            dialect,
            tools,
            Lark(tokenizer, self._ll_tokenizer()),
            template=ChatTemplate(tokenizer).text(conversation.tools) or "",
            many=conversation.parallel_tool_calls,
        )

    def _behind_reasoning(self, rendered: Rendered) -> str:
        """The start rule."""
        markers = reasoning_markers(self._model.tokenizer)
        if markers is None or not (rendered.starts_in_reasoning or rendered.may_reason):
            return "start: answer\n"
        lark = Lark(self._model.tokenizer, self._ll_tokenizer())
        inside = lark.until(markers.end, "reasoning")
        space = "SPACE: /[ \\t\\r\\n]{1,4}/\n"
        if rendered.starts_in_reasoning:
            return f"start: reasoning SPACE? answer\n{inside}{space}"
        start = lark.text(markers.start)
        return f"start: ({start} reasoning SPACE?)? answer\n{inside}{space}"

    def _matcher(self, grammar: str, key: str) -> LLMatcher:
        with self._lock:
            known = self._compiled.get(grammar)
            if known is not None:
                self._compiled.move_to_end(grammar)
                return known.deep_copy()
        tokenizer = self._ll_tokenizer()

        def compiled() -> LLMatcher:
            source = LLMatcher.grammar_from_lark(grammar)
            return LLMatcher(tokenizer, source, log_level=0, limits=_limits())

        try:
            matcher = run_bounded(compiled, COMPILE_SECONDS)
        except OvertimeError as error:
            raise InvalidRequestError(f"{key}: compiling it {error}.", key=key) from None
        fault = matcher.get_error() or "; ".join(matcher.get_grammar_warnings())
        if fault:
            raise InvalidRequestError(f"{key}: {_short(fault)}", key=key)
        with self._lock:
            self._compiled[grammar] = matcher
            while len(self._compiled) > MAX_CACHED:
                self._compiled.popitem(last=False)
        return matcher.deep_copy()

    def _ll_tokenizer(self) -> LLTokenizer:
        model = self._model
        with self._lock:
            if self._tokenizer is None:
                try:
                    self._tokenizer = LLTokenizer(
                        model.tokenizer.backend_tokenizer.to_str(),
                        n_vocab=max(model.vocab_size, len(model.tokenizer)),
                        eos_token=list(model.eos_token_ids),
                    )
                except (AttributeError, ValueError) as error:
                    raise UnsupportedModelError(
                        f"the vocabulary of {model.name} can't be used with grammars: {error}.",
                        hint="Send no response_format, strict tools or required tool_choice.",
                    ) from error
            return self._tokenizer


class GrammarConstraint:
    """The tokens that a grammar allows; see Constraint. At its end the end tokens are all that is left."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, end_tokens: Sequence[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._end_tokens = frozenset(end_tokens)
        self._end_mask = np.zeros(vocab_size, dtype=np.bool_)
        self._end_mask[list(end_tokens)] = True
        self._has_ended = False

    def allowed(self, drafts: Sequence[int]) -> Mask | None:
        """Which tokens may follow; see Constraint. None behind an end token, too."""
        if not self._end_tokens.isdisjoint(drafts):
            return None
        if self._has_ended:
            return None if drafts else self._end_mask
        taken = self._matcher.try_consume_tokens(list(drafts)) if drafts else 0
        try:
            return self._mask() if taken == len(drafts) else None
        finally:
            if taken:
                self._matcher.rollback(taken)

    def commit(self, tokens: Sequence[int]) -> None:
        """Take committed tokens; see Constraint."""
        for token in tokens:
            if token in self._end_tokens and (self._has_ended or self._matcher.is_accepting()):
                self._has_ended = True
            elif self._has_ended or not self._matcher.consume_token(token):
                raise InternalError(f"token {token} was committed against the grammar")

    def _mask(self) -> Mask:
        if self._matcher.is_stopped() and not self._matcher.is_error():
            return self._end_mask
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            raise InvalidRequestError(
                f"the grammar cannot be followed any further: {_short(self._matcher.get_error())}",
                key="response_format",
            )
        return np.unpackbits(bits, bitorder="little")[: self._vocab_size].view(np.bool_)


def _schema(response_format: Mapping[str, Any] | None) -> Any:
    """The JSON schema asked for; None where text was."""
    kind = "text" if response_format is None else response_format.get("type")
    if response_format is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise InvalidRequestError(
            f"response_format.type is {kind!r}, expected text, json_object or json_schema.",
            key="response_format.type",
        )
    wanted = response_format.get("json_schema")
    if not isinstance(wanted, Mapping) or "schema" not in wanted:
        raise InvalidRequestError(f"{SCHEMA_KEY} is missing.", key=SCHEMA_KEY)
    return wanted["schema"]


def _chosen(
    tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any]
) -> Sequence[Mapping[str, Any]]:
    """The tools of which one must be called."""
    if not tools:
        raise InvalidRequestError(
            "tool_choice asks for a call and no tools are offered.", key="tools"
        )
    if isinstance(choice, str):
        return tools
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    named = [tool for tool in tools if tool["function"]["name"] == name]
    if not named:
        raise InvalidRequestError(
            f"tool_choice names {name!r}, which is not among the tools.",
            key="tool_choice.function.name",
        )
    return named


def _limits() -> LLParserLimits:
    # More than schemas of the allowed size need; one that needs still more would be slow at every token, too.
    return LLParserLimits(
        initial_lexer_fuel=2_000_000, max_grammar_size=200_000, verbose_errors=False
    )


def _short(fault: str) -> str:
    """llguidance's reason in one line, without the grammar that it quotes."""
    lines = [line.strip() for line in fault.splitlines() if not _QUOTED.match(line)]
    reason = re.sub(r"^at \d+\(\d+\): ", "", " ".join(lines))
    return reason if len(reason) <= 400 else f"{reason[:400]}..."
