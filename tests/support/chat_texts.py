"""Chats of the kind the trained checkpoints were trained on, made of documented functions of the standard library."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ASKS = (
    "Write a Python function named {name}. {what}",
    "Implement `{name}` in Python: {what}",
    "{what} Call the function {name}.",
    "I need a function `{name}`. {what}",
)
_MODULES = (
    "argparse bisect calendar cgi configparser copy csv difflib fractions ftplib functools getpass "
    "gzip heapq http.cookies imaplib inspect ipaddress json.decoder locale logging.handlers "
    "mailbox mimetypes ntpath os pathlib pickle platform posixpath pprint random shelve shutil "
    "statistics tarfile tempfile textwrap threading tokenize traceback uuid zipfile"
).split()


def library_chats() -> list[list[dict[str, Any]]]:
    """A question for a function and its source as the answer, one for each documented function."""
    chats = []
    for module in _MODULES:
        for name, what, source in _functions(module):
            ask = _ASKS[len(chats) % len(_ASKS)].format(name=name, what=what)
            chats.append(
                [
                    {"role": "user", "content": ask},
                    {"role": "assistant", "content": f"```python\n{source}\n```"},
                ]
            )
    return chats


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
