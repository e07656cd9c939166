"""The text that a file would show to the world, and the local paths in it."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mtplx.contracts.tensor_header import read_header

MAX_TEXT_BYTES: Final = 256 * 1024 * 1024

# Lists of words: "/home" is a token of many vocabularies, and no path.
_VOCABULARY_FILES = ("vocab.json", "merges.txt", "*.tiktoken", "tiktoken.model", "tokenizer.model")
_VOCABULARY_KEYS = frozenset({"vocab", "merges"})

_LOCAL_PATH = re.compile(
    r"(?<![\w.~-])/(?:home|Users|root|tmp|work)/[\w.@+-]+"
    r"|(?<!\w)[A-Za-z]:[\\/]+Users[\\/]+[\w.@+-]+"
)


def is_vocabulary(name: str) -> bool:
    """Whether the file `name` holds nothing but the words of a tokenizer."""
    return any(PurePosixPath(name).match(pattern) for pattern in _VOCABULARY_FILES)


def raw_text(path: Path) -> str:
    """All of the file's text; of a safetensors file the metadata and the names of its tensors.

    Bytes that are no UTF-8 are replaced. Raises OSError, and TensorFileError for a bad header.
    """
    if path.suffix == ".safetensors":
        tensors, metadata = read_header(path)
        return "\n".join([*(f"{key}\n{value}" for key, value in metadata.items()), *tensors])
    return path.read_bytes().decode("utf-8", errors="replace")


def visible_text(text: str) -> str:
    """`text`, or if it is JSON the keys and values in it without a tokenizer's vocabulary.

    Escapes in JSON would hide a path: backslashes are doubled, slashes may be escaped.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "\n".join(_strings(value))


def local_paths(text: str) -> tuple[str, ...]:
    """Paths of somebody's machine in `text`, and the name of this one; each once, in order."""
    found = [match[0] for match in _LOCAL_PATH.finditer(text)]
    found += [name for name in _own_names() if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    return tuple(dict.fromkeys(found))


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            yield from part
            waiting += [item for key, item in part.items() if key not in _VOCABULARY_KEYS]


def _own_names() -> Iterator[str]:
    """Home folder and host name, unless they are too common to give anything away."""
    try:
        home = Path.home().as_posix()
    except RuntimeError:
        home = "/"
    # "/root" and the like are words of their own; what lies below them is found by the pattern.
    if home.count("/") >= 2:
        yield home
    host = socket.gethostname()
    if len(host) >= 6 and re.search(r"[\d.-]", host):
        yield host
