"""Chats of the kind the trained checkpoints were trained on, made of documented functions of the standard library."""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_ASKS = (
    "Write a Python function named {name}. {what}",
    "Implement `{name}` in Python: {what}",
    "{what} Call the function {name}.",
    "I need a function `{name}`. {what}",
)
_MODULES = """
    argparse bisect calendar cgi configparser copy csv difflib fractions ftplib functools getpass
    gzip heapq http.cookies imaplib inspect ipaddress json.decoder locale logging.handlers
    mailbox mimetypes ntpath os pathlib pickle platform posixpath pprint random shelve shutil
    statistics tarfile tempfile textwrap threading tokenize traceback uuid zipfile
"""


def library_chats() -> list[list[dict[str, Any]]]:
    """A question for a function and its source as the answer, one for each documented function."""
    chats: list[list[dict[str, Any]]] = []
    for module in _MODULES.split():
        for name, what, source in _functions(module):
            ask = _ASKS[len(chats) % len(_ASKS)].format(name=name, what=what)
            chats.append(
                [
                    {"role": "user", "content": ask},
                    {"role": "assistant", "content": f"```python\n{source}\n```"},
                ]
            )
    return chats


class ToolChat(NamedTuple):
    """A conversation with a tool call, and the tools that were offered."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


def tool_chats(count: int) -> list[ToolChat]:
    """Questions answered by one of the tools the checkpoints know, always the same ones."""
    chooser = random.Random(7)
    return [_tool_chat(chooser) for _ in range(count)]


def _tool_chat(chooser: random.Random) -> ToolChat:
    offered = chooser.sample(_TOOLS, chooser.randint(1, 3))
    tool = chooser.choice(offered)
    arguments = {key: chooser.choice(values) for key, values in tool.values.items()}
    result = str(chooser.randint(-5, 99))
    call = {"name": tool.name, "arguments": arguments}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": tool.question.format(**arguments)},
        {"role": "assistant", "content": "", "tool_calls": [{"function": call}]},
        {"role": "tool", "content": result},
        {"role": "assistant", "content": f"The answer is {result}."},
    ]
    return ToolChat(messages, [t.schema() for t in offered])


class _Tool(NamedTuple):
    name: str
    description: str
    types: dict[str, str]
    values: dict[str, list[Any]]
    question: str

    def schema(self) -> dict[str, Any]:
        properties = {key: {"type": kind} for key, kind in self.types.items()}
        parameters = {"type": "object", "properties": properties, "required": list(self.types)}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


_TOOLS = (
    _Tool(
        "get_weather",
        "Current weather of a city.",
        {"city": "string"},
        {"city": ["Paris", "Oslo", "Lima", "Cairo", "Tokyo", "Rome", "Berlin", "Lagos"]},
        "What is the weather in {city}?",
    ),
    _Tool(
        "add",
        "Sum of two integers.",
        {"a": "integer", "b": "integer"},
        {"a": list(range(1, 99)), "b": list(range(1, 99))},
        "What is {a} plus {b}?",
    ),
    _Tool(
        "read_file",
        "Read a text file.",
        {"path": "string"},
        {"path": ["README.md", "setup.py", "notes.txt", "src/main.py", "data/table.csv"]},
        "Show me the file {path}.",
    ),
)


def _functions(module: str) -> Iterator[tuple[str, str, str]]:
    # Frozen modules have no origin, but their source lies with the others.
    path = Path(sysconfig.get_path("stdlib"), *module.split(".")).with_suffix(".py")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for node in ast.walk(ast.parse(text)):
        doc = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
        if not isinstance(node, ast.FunctionDef) or doc is None or len(doc) < 20:
            continue
        source = ast.get_source_segment(text, node) or ""
        first = doc.strip().split("\n\n")[0].replace("\n", " ").strip()
        if 120 < len(source) < 1600 and 15 < len(first) < 240:
            pad = " " * node.col_offset
            lines = [line.removeprefix(pad) for line in source.split("\n")]
            yield node.name, first, "\n".join(lines)
