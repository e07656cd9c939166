"""The text that a file would show to the world, and the local paths in it."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.json_object import MAX_JSON_BYTES
from mtplx.contracts.tensor_header import read_header

# Lists of words: "/home" is a token of many vocabularies, and no path.
_VOCABULARY_FILES = ("vocab.json", "merges.txt", "*.tiktoken", "tiktoken.model", "tokenizer.model")
_VOCABULARY_KEYS: Final = frozenset({"vocab", "merges"})

# Folders in which people and machines keep their own files; not part of an address of the web.
_LOCAL_PATH = re.compile(
    r"(?<![\w.~-])/(?:home|Users|root|tmp|mnt|media|scratch|workspace|Volumes|private|var/folders)"
    r"/[\w.@+-]+"
    r"|(?<!\w)[A-Za-z]:[\\/]+Users[\\/]+[\w.@+-]+"
)


def raw_text(path: Path) -> str:
    """All of the file's text; of a safetensors file the metadata and the names of its tensors.

    Bytes that are no UTF-8 are replaced. Raises OSError, TensorFileError for a bad header, and
    CorruptModelError for a file larger than any text that mtplx reads.
    """
    if path.suffix == ".safetensors":
        tensors, metadata = read_header(path)
        return "\n".join([*(f"{key}\n{value}" for key, value in metadata.items()), *tensors])
    if (size := path.stat().st_size) > MAX_JSON_BYTES:
        raise CorruptModelError(f"{size} bytes are too many to be searched")
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


def local_paths(name: str, visible: str, folder: Path) -> tuple[str, ...]:
    """Paths of somebody's machine in the file `name`; each once, in order.

    Besides the places that machines share, those of this one: home, host, and where `folder` lies.
    """
    if any(PurePosixPath(name).match(pattern) for pattern in _VOCABULARY_FILES):
        return ()
    found = [match[0] for match in _LOCAL_PATH.finditer(visible)]
    found += [
        own for own in _own_names(folder) if re.search(rf"(?<!\w){re.escape(own)}(?!\w)", visible)
    ]
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


def _own_names(folder: Path) -> Iterator[str]:
    """Home folder, host name and the place of `folder`, unless too common to give anything away."""
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("/")
    for place in (home, folder.resolve(), folder.resolve().parent):
        if len(place.parts) > 2:
            yield place.as_posix()
    host = socket.gethostname()
    if len(host) >= 6 and re.search(r"[\d.-]", host):
        yield host
