"""Bringing a repository to the state of an artifact: only what differs, in one commit."""

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from huggingface_hub import CommitOperationAdd, CommitOperationDelete
from huggingface_hub.utils.sha import git_hash

from mtplx.contracts.errors import DownloadError, UsageError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.forge.hub.download import RemoteFile
from mtplx.forge.publish.remote import CommitOperation, Remote, RemoteState

# Files that a loader picks up by their name: one left over from an older artifact would be read.
_LOADED = (
    "model*.safetensors",
    "model*.safetensors.index.json",
    "mtp/*.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "*.tiktoken",
    "chat_template.*",
    "additional_chat_templates/*.jinja",
    "*processor_config.json",
)
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz")

OnBytes = Callable[[int], None]
"""Called with the bytes of the changed files that are on the hub; what it raises ends the upload."""


@dataclass(frozen=True, slots=True)
class Upload:
    """One file as the repository shall hold it. `content` is a path, or the bytes themselves."""

    name: str
    size: int
    sha256: str
    content: Path | bytes

    @classmethod
    def of_text(cls, name: str, text: str) -> "Upload":
        """A file that is made for the repository."""
        data = text.encode("utf-8")
        return cls(name, len(data), hashlib.sha256(data).hexdigest(), data)

    def is_at(self, remote: RemoteFile | None) -> bool:
        """Whether the repository holds the same bytes under this name."""
        if remote is None or remote.size != self.size:
            return False
        if remote.sha256 is not None:
            return remote.sha256 == self.sha256
        data = self.content if isinstance(self.content, bytes) else self.content.read_bytes()
        return remote.blob_id == git_hash(data)


@dataclass(frozen=True, slots=True)
class Changes:
    """What has to be done to a repository."""

    added: tuple[Upload, ...]
    unchanged: tuple[str, ...]
    deleted: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of the files that differ."""
        return sum(upload.size for upload in self.added)

    def __bool__(self) -> bool:
        return bool(self.added or self.deleted)


def compare(uploads: Sequence[Upload], state: RemoteState, repo: str) -> Changes:
    """What is missing in `state`, and what an older artifact left there.

    Raises UsageError when the repository holds a model that is no artifact.
    """
    weights = [name for name in state.files if name.endswith(_WEIGHT_SUFFIXES)]
    if weights and CONTRACT_NAME not in state.files:
        raise UsageError(
            f"{repo} holds a model that is no artifact of mtplx ({weights[0]}, no {CONTRACT_NAME}); "
            "publishing would replace it.",
            hint="Give the artifact a repository of its own with --repo.",
        )
    names = {upload.name for upload in uploads}
    same = {upload.name for upload in uploads if upload.is_at(state.files.get(upload.name))}
    return Changes(
        added=tuple(upload for upload in uploads if upload.name not in same),
        unchanged=tuple(sorted(same)),
        deleted=tuple(sorted(n for n in state.files if n not in names and _is_loaded(n))),
    )


def send(remote: Remote, changes: Changes, parent: str, message: str, on_bytes: OnBytes) -> str:
    """Upload what differs and make it visible by one commit on top of `parent`; its id.

    Content that the hub has already, from an attempt that was stopped, is not sent again. Nothing
    is visible before the commit. Raises MovedError when the head is no longer `parent`.
    """
    done = 0
    operations: list[CommitOperation] = []
    for upload in changes.added:
        operations.append(_send_one(remote, upload, done, on_bytes))
        done += upload.size
        on_bytes(done)
    operations += [CommitOperationDelete(name, is_folder=False) for name in changes.deleted]
    return remote.commit(operations, message, parent)


def check_arrived(uploads: Sequence[Upload], state: RemoteState, repo: str) -> None:
    """Raise DownloadError when the repository does not hold every file as it was sent."""
    wrong = [upload.name for upload in uploads if not upload.is_at(state.files.get(upload.name))]
    if wrong:
        raise DownloadError(
            f"{repo} was committed as {state.commit} and does not hold {wrong[0]} as it was sent.",
            hint="Does the repository have a .gitignore that names it? Publish again.",
        )


def _send_one(remote: Remote, upload: Upload, start: int, on_bytes: OnBytes) -> CommitOperationAdd:
    """The operation that adds `upload`, its content on the hub if it is too large for the commit.

    What is sent is what was verified: weights under their known hash, so that the hub refuses
    others, and everything else after it was compared once more.
    """
    if isinstance(upload.content, bytes) or not upload.name.endswith(_WEIGHT_SUFFIXES):
        operation = CommitOperationAdd(upload.name, _verified_bytes(upload))
        remote.upload(operation)
        return operation
    operation = CommitOperationAdd(upload.name, upload.content)
    operation.upload_info.sha256 = bytes.fromhex(upload.sha256)
    # Opened only now: an operation that is made of an open file reads it whole to hash it.
    path = operation.path_or_fileobj
    with _CountedFile(upload.content, lambda at: on_bytes(start + at)) as file:
        operation.path_or_fileobj = file
        remote.upload(operation)
    operation.path_or_fileobj = path
    return operation


def _verified_bytes(upload: Upload) -> bytes:
    data = upload.content if isinstance(upload.content, bytes) else upload.content.read_bytes()
    if hashlib.sha256(data).hexdigest() != upload.sha256:
        raise UsageError(
            f"{upload.name} has changed since it was checked.",
            hint="Publish again when nothing else writes to the artifact.",
        )
    return data


class _CountedFile(io.BufferedReader):
    """A file that tells how far it has been read, so that progress is seen and can be stopped.

    The library sends file objects by plain HTTP, and only paths through hf_xet, which reports to
    progress bars of its own alone and cannot be stopped between two reads.
    """

    def __init__(self, path: Path, on_position: OnBytes) -> None:
        super().__init__(io.FileIO(path))
        self._on_position = on_position

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._on_position(self.tell())
        return data


def _is_loaded(name: str) -> bool:
    path = PurePosixPath(name)
    return any(
        path.match(pattern) and len(path.parts) == pattern.count("/") + 1 for pattern in _LOADED
    )
