"""Grammar text for llguidance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llguidance import LLTokenizer

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

# Unbounded white space would let a model write blanks until its budget ends.
_JSON_SPACE = r"[\x20\x0A\x0D\x09]{1,32}"


@dataclass(frozen=True, slots=True)
class Lark:
    """Writes terminals of llguidance's Lark dialect for one vocabulary."""

    tokenizer: TokenizerWrapper
    vocabulary: LLTokenizer

    def text(self, text: str) -> str:
        """Exactly this text; a special token stands for itself, for no other tokens spell it."""
        token = self._special(text)
        return json.dumps(text, ensure_ascii=False) if token is None else f"<[{token}]>"

    def until(self, end: str, rule: str) -> str:
        """The definition of `rule`: any text up to and with `end`."""
        token = self._special(end)
        if token is not None:
            return f"{rule}: {rule.upper()} <[{token}]>\n{rule.upper()}: /(?s:.*)/\n"
        return f"{rule}[lazy]: /(?s:.*){_escaped(end)}/\n"

    def before(self, marker: str, rule: str, terminal: str) -> str:
        """The definitions of `rule`, any text up to and with `marker`, and `terminal`, text without it."""
        token = self._special(marker)
        if token is not None:
            return f"{rule}: {terminal}? <[{token}]>\n{terminal}: /(?s:.+)/\n"
        # Lazy, for the lexer does not go back to where a marker began.
        spelled = _escaped(marker)
        return (
            f"{rule}[lazy]: /(?s:.*){spelled}/\n"
            f"{terminal}: /(?s:.+)/ & ~/(?s:.*){spelled}(?s:.*)/\n"
        )

    def _special(self, text: str) -> int | None:
        token = self.tokenizer.convert_tokens_to_ids(text)
        is_token = token is not None and self.tokenizer.convert_ids_to_tokens(token) == text
        return int(token) if is_token and self.vocabulary.is_special_token(token) else None


def json_rule(schema: Mapping[str, Any] | bool) -> str:
    """JSON of a schema; white space between its tokens is allowed, and bounded."""
    if isinstance(schema, bool):
        return f"%json {json.dumps(schema)}"
    return "%json " + json.dumps({**schema, "x-guidance": {"whitespace_pattern": _JSON_SPACE}})


def _escaped(text: str) -> str:
    """A regular expression, without the slashes around it, for exactly this text."""
    return "".join(f"\\{c}" if c in r"\.^$*+?{}[]|()/-&~#" else c for c in text).replace(
        "\n", "\\n"
    )
