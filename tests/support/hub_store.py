"""Repositories of the local hub: commits of files, with git's and LFS's hashes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LFS_SUFFIXES = {".safetensors", ".bin", ".gguf", ".pt"}

Files = dict[str, "Blob"]


@dataclass(frozen=True)
class Blob:
    """The content of a file. Files in LFS are known by sha256, others by git's hash."""

    data: bytes
    is_lfs: bool

    @cached_property
    def sha256(self) -> str:
        """sha256 of the content."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def git_hash(self) -> str:
        """What git calls the file: for LFS files the hash of the pointer that git stores."""
        return _git_hash(self._pointer if self.is_lfs else self.data)

    @property
    def etag(self) -> str:
        """What the hub's answers call the content."""
        return self.sha256 if self.is_lfs else self.git_hash

    @property
    def _pointer(self) -> bytes:
        return (
            "version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{self.sha256}\nsize {len(self.data)}\n"
        ).encode()

    def sibling(self, name: str) -> dict[str, Any]:
        """The file in an answer about a model."""
        entry: dict[str, Any] = {
            "rfilename": name,
            "size": len(self.data),
            "blobId": self.git_hash,
        }
        return {**entry, "lfs": self._lfs} if self.is_lfs else entry

    def tree_entry(self, name: str) -> dict[str, Any]:
        """The file in an answer about a folder."""
        entry: dict[str, Any] = {
            "type": "file",
            "path": name,
            "size": len(self.data),
            "oid": self.git_hash,
        }
        return {**entry, "lfs": self._lfs | {"oid": self.sha256}} if self.is_lfs else entry

    @property
    def _lfs(self) -> dict[str, Any]:
        size = len(self.data)
        return {"sha256": self.sha256, "size": size, "pointerSize": len(self._pointer)}


@dataclass(frozen=True)
class Request:
    """One request to the hub; `sent` counts bytes of the answer's body, `received` of its own.

    `status` is 0 when the hub hung up without an answer.
    """

    method: str
    path: str
    range: str | None
    status: int
    sent: int
    is_authorized: bool
    received: int = 0


@dataclass
class Repository:
    """Commits by id, and branches; `info` holds what a search tells (tags, config, downloads).

    `operations` names, for each commit that was asked for, what was sent: "file config.json".
    """

    name: str
    private: bool = False
    gated: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    operations: list[list[str]] = field(default_factory=list)

    def resolve(self, revision: str) -> str | None:
        """The commit of a branch or commit id."""
        return self.branches.get(revision, revision if revision in self.commits else None)

    def commit(self, files: Files, *, branch: str = "main", message: str = "") -> str:
        """Make `files` the content of `branch`; the new commit's id."""
        named = {name: blob.git_hash for name, blob in sorted(files.items())}
        text = json.dumps([self.name, len(self.commits), named, message])
        commit = hashlib.sha1(text.encode()).hexdigest()
        self.commits[commit] = files
        self.branches[branch] = commit
        self.messages.append(message)
        return commit

    def head(self, branch: str = "main") -> Files:
        """The files of a branch."""
        return self.commits[self.branches[branch]]


def files_of(folder: Path) -> Files:
    """Every file of `folder` as the hub would store it."""
    return {
        path.relative_to(folder).as_posix(): blob_for(
            path.relative_to(folder).as_posix(), path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def as_files(content: Mapping[str, bytes]) -> Files:
    """`content` as the hub would store it."""
    return {name: blob_for(name, data) for name, data in content.items()}


def blob_for(name: str, data: bytes) -> Blob:
    """The content of the file `name`: weights go to LFS."""
    return Blob(data, belongs_in_lfs(name))


def belongs_in_lfs(name: str) -> bool:
    """Whether the hub keeps the file `name` out of git."""
    return PurePosixPath(name).suffix in _LFS_SUFFIXES


def _git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
