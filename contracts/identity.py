"""The content identity of a model folder: sha256 of everything that decides its output.

Names of folders and repositories play no part; two copies of the same files are the same model.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.files import sha256_file
from mtplx.contracts.paths import resolve_inside

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
class FileHash:
    """One file of a model: its role, its name inside the folder, size in bytes and sha256."""

    role: Role
    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Hashes of all files of a model."""

    files: tuple[FileHash, ...]

    @property
    def combined(self) -> str:
        """One hash for the whole model."""
        return _combine(self.files)

    def of(self, role: Role) -> str:
        """One hash for the files of a role; no files have the hash of nothing."""
        return _combine(tuple(file for file in self.files if file.role == role))

    def hashes(self) -> dict[str, str]:
        """sha256 by file name."""
        return {file.name: file.sha256 for file in self.files}

    def to_json(self) -> dict[str, object]:
        """`identity`, one hash per role, and `files` with role, name, size and sha256."""
        return {
            "identity": self.combined,
            "weights": self.of("weights"),
            "tokenizer": self.of("tokenizer"),
            "template": self.of("template"),
            "config": self.of("config"),
            "files": [
                {"role": f.role, "name": f.name, "size": f.size, "sha256": f.sha256}
                for f in self.files
            ],
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
            FileHash(role, name, size, sha256_file(folder / name, on_bytes=advance))
            for (role, name), size in zip(named, sizes, strict=True)
        )
    except OSError as cause:
        raise CorruptModelError(
            f"{cause.filename or folder} cannot be read: {cause.strerror or cause}.",
            hint="Check the file's permissions, or fetch it again.",
        ) from cause
    return Identity(files)


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


def _combine(files: tuple[FileHash, ...]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda f: (f.role, f.name)):
        digest.update(f"{file.role}\0{file.name}\0{file.sha256}\n".encode())
    return digest.hexdigest()
