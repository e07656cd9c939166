"""The content identity of a model folder: sha256 of everything that decides its output.

Names of folders and repositories play no part; two copies of the same files are the same model.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.files import sha256_file
from mtplx.contracts.paths import resolve_inside
from mtplx.contracts.tensor_header import read_raw_header

CONTRACT_NAME = "mtplx_runtime.json"
"""The one file that is not part of the identity: it records it."""

Role = Literal["weights", "tokenizer", "template", "config"]

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "*.tiktoken",
    "tiktoken.model",
)
_TEMPLATE_FILES = (
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
)
_CONFIG_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    "preprocessor_config.json",
    "processor_config.json",
    "hf_quant_config.json",
)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a file was when it was written: size in bytes and sha256 of all of them.

    `header_sha256` is there for safetensors: sha256 of the 8 bytes of length and the JSON header,
    so that names, types, shapes and places of the tensors can be compared without reading them.
    """

    size: int
    sha256: str
    header_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class NamedFile:
    """One file of a model: its role, its name inside the folder, and what it is."""

    role: Role
    name: str
    record: FileRecord


@dataclass(frozen=True, slots=True)
class Identity:
    """Hashes of all files of a model."""

    files: tuple[NamedFile, ...]

    @property
    def combined(self) -> str:
        """One hash for the whole model."""
        return _combine(self.files)

    def of(self, role: Role) -> str:
        """One hash for the files of a role; no files have the hash of nothing."""
        return _combine(tuple(file for file in self.files if file.role == role))

    def records(self) -> dict[str, FileRecord]:
        """What each file is, by its name."""
        return {file.name: file.record for file in self.files}

    def to_json(self) -> dict[str, object]:
        """`identity`, one hash per role, and `files` with role, name and the fields of the record."""
        return {
            "identity": self.combined,
            "weights": self.of("weights"),
            "tokenizer": self.of("tokenizer"),
            "template": self.of("template"),
            "config": self.of("config"),
            "files": [{"role": f.role, "name": f.name, **asdict(f.record)} for f in self.files],
        }


def content_identity(
    folder: Path,
    weight_files: tuple[str, ...],
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> Identity:
    """Hash every file of the model in `folder`; `weight_files` as in `TensorIndex.files`.

    Reads all weights once. `on_progress` gets bytes done and bytes in all. Raises
    CorruptModelError when a file cannot be read, TensorFileError when it leads out of the folder.
    """
    named = identity_files(folder, weight_files)
    try:
        sizes = [resolve_inside(folder, name).stat().st_size for _, name in named]
        total, done = sum(sizes), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if on_progress is not None:
                on_progress(done, total)

        files = tuple(
            NamedFile(role, name, record_file(folder / name, on_bytes=advance))
            for role, name in named
        )
    except OSError as cause:
        raise unreadable(folder, cause) from cause
    return Identity(files)


def record_file(path: Path, *, on_bytes: Callable[[int], None] | None = None) -> FileRecord:
    """The record of the file `path`, which is read whole; `on_bytes` gets the size of each chunk.

    Raises OSError, and TensorFileError for a safetensors file without a header.
    """
    size = path.stat().st_size
    header = header_sha256(path) if path.suffix == ".safetensors" else None
    return FileRecord(size, sha256_file(path, on_bytes=on_bytes), header)


def header_sha256(path: Path) -> str:
    """sha256 of the length bytes and the header of a safetensors file; no tensor is read.

    Raises OSError, and TensorFileError when the file has no header.
    """
    raw = read_raw_header(path)
    return hashlib.sha256(len(raw).to_bytes(8, "little") + raw).hexdigest()


def unreadable(folder: Path, cause: OSError) -> CorruptModelError:
    """What to tell when a file of the model in `folder` cannot be read."""
    return CorruptModelError(
        f"{cause.filename or folder} cannot be read: {cause.strerror or cause}.",
        hint="Check the file's permissions, or fetch it again.",
    )


def identity_files(folder: Path, weight_files: tuple[str, ...]) -> list[tuple[Role, str]]:
    """Role and name of every file that counts, weights first, names sorted within a role."""
    patterns: dict[Role, tuple[str, ...]] = {
        "tokenizer": _TOKENIZER_FILES,
        "template": _TEMPLATE_FILES,
        "config": _CONFIG_FILES,
    }
    named: list[tuple[Role, str]] = [("weights", name) for name in sorted(weight_files)]
    for role, globs in patterns.items():
        found = {
            path.relative_to(folder).as_posix()
            for glob in globs
            for path in folder.glob(glob)
            if path.is_file()
        }
        named += [(role, name) for name in sorted(found)]
    return named


def _combine(files: tuple[NamedFile, ...]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda f: (f.role, f.name)):
        digest.update(f"{file.role}\0{file.name}\0{file.record.sha256}\n".encode())
    return digest.hexdigest()
