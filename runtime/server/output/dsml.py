"""The tool calls of DeepSeek V3.2, for which mlx-lm has a template and no parser."""

from __future__ import annotations

import json
from typing import Any

import regex

MARK = "｜DSML｜"
START = f"<{MARK}function_calls>"
END = f"</{MARK}function_calls>"
CLOSER = f"</{MARK}invoke>"

_INVOKE = regex.compile(
    rf'<{MARK}invoke\s+name="(?P<name>[^"]+)"\s*>(?P<body>.*?){CLOSER}', regex.DOTALL
)
_PARAMETER = regex.compile(
    rf'<{MARK}parameter\s+name="(?P<key>[^"]+)"(?:\s+string="(?P<is_text>true|false)")?\s*>'
    rf"(?P<value>.*?)</{MARK}parameter>",
    regex.DOTALL,
)


def parse_dsml(text: str, tools: Any = None) -> list[dict[str, Any]]:
    """The calls in the text between the markers. A parameter says itself whether it is text or JSON.

    Raises ValueError where a value that should be JSON is not, or no call is there.
    """
    del tools  # The types are in the text.
    calls = [
        {
            "name": invoke["name"],
            "arguments": {
                parameter["key"]: _value(parameter["value"], parameter["is_text"] == "true")
                for parameter in _PARAMETER.finditer(invoke["body"])
            },
        }
        for invoke in _INVOKE.finditer(text)
    ]
    if not calls:
        raise ValueError("no invoke element")
    return calls


def _value(text: str, is_text: bool) -> Any:
    return text if is_text else json.loads(text)
