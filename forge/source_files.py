"""Which files of a checkpoint a build needs, and which of them hold weights.

Code, weights in other formats, pictures and nested copies in other layouts are left where they
are: mtplx neither runs nor reads them.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from mtplx.contracts.errors import MTPLXError
from mtplx.contracts.json_object import MAX_JSON_BYTES, read_object

_SIDE_FILES = (
    "*.json",
    "*.jinja",
    "additional_chat_templates/*.jinja",
    "tokenizer.model",
    "*.tiktoken",
    "tiktoken.model",
    "vocab.txt",
    "merges.txt",
    "LICENSE*",
    "LICENCE*",
    "README.md",
)
_TRUNK_FILES = ("model*.safetensors",)
_HEAD_FILES = ("mtp.safetensors", "mtp/*.safetensors", "model-mtp*.safetensors")
_OTHER_FORMATS = (".bin", ".pt", ".pth", ".gguf")
_NEVER = (".py", *_OTHER_FORMATS)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a checkpoint: name inside it, bytes, and the sha256 where the source states it."""

    name: str
    size: int
    sha256: str | None = None


def is_side_file(name: str, size: int) -> bool:
    """Whether `name` is configuration, tokenizer, template, licence or card.

    Files larger than any that mtplx would read are not.
    """
    return _matches(name, _SIDE_FILES) and not name.endswith(_NEVER) and size <= MAX_JSON_BYTES


def is_head_file(name: str) -> bool:
    """Whether `name` is one of the names under which an MTP head comes in a file of its own."""
    return _matches(name, _HEAD_FILES)


def is_other_format(name: str) -> bool:
    """Whether `name` lies at the root and holds weights in a format that mtplx does not read."""
    return "/" not in name and name.endswith(_OTHER_FORMATS)


def visible_weights(names: Iterable[str], index_files: Collection[str]) -> tuple[str, ...]:
    """The safetensors files that an inspection of the folder could come across."""
    return tuple(
        name
        for name in names
        if _matches(name, ("*.safetensors", *_HEAD_FILES)) or _is_indexed(name, index_files)
    )


def model_weights(names: Iterable[str], index_files: Collection[str]) -> tuple[str, ...]:
    """The safetensors files that make up the model: those of the index, and a head beside it.

    Without an index that names existing files, every `model*.safetensors`.
    """
    listed = list(names)
    indexed = [name for name in listed if _is_indexed(name, index_files)]
    trunk = indexed or [name for name in listed if _matches(name, _TRUNK_FILES)]
    return tuple(name for name in listed if name in trunk or is_head_file(name))


def index_files(path: Path) -> frozenset[str]:
    """The weight files that the index at `path` names; none when it is absent or unreadable.

    A broken index is for the inspection to report.
    """
    try:
        weight_map = read_object(path).get("weight_map") if path.is_file() else None
    except MTPLXError:
        return frozenset()
    values = weight_map.values() if isinstance(weight_map, dict) else ()
    return frozenset(file for file in values if isinstance(file, str))


def _is_indexed(name: str, index_files: Collection[str]) -> bool:
    return name in index_files and name.endswith(".safetensors")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern of the same depth matches: `*` does not reach into folders."""
    return any(
        name.count("/") == pattern.count("/") and fnmatchcase(name, pattern) for pattern in patterns
    )
