"""A repository of the hub at one commit."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants
from huggingface_hub.hf_api import RepoSibling

from mtplx.contracts.errors import DownloadError, ResourceError
from mtplx.contracts.paths import resolve_inside
from mtplx.contracts.tensors import INDEX_NAME
from mtplx.forge.hub.address import Address
from mtplx.forge.hub.download import Download, RemoteFile
from mtplx.forge.hub.errors import hub_errors
from mtplx.forge.hub.headers import read_head
from mtplx.forge.hub.retry import retried
from mtplx.forge.source import OnProgress
from mtplx.forge.source_files import (
    SourceFile,
    index_files,
    is_other_format,
    is_side_file,
    model_weights,
    visible_weights,
)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_LIST_TIMEOUT_S = 60.0
_HEADER_WORKERS = 8


@dataclass(frozen=True, slots=True)
class HubSource:
    """A checkpoint on the hub. Nothing is read at anything but `commit`.

    `listing` holds every file of the commit, `indexed` the weight files that its index names.
    """

    label: str
    repo: str
    commit: str
    listing: tuple[RemoteFile, ...]
    indexed: frozenset[str]
    cache: Path

    @property
    def name(self) -> str:
        """The repository's name without its owner."""
        return self.repo.rpartition("/")[2]

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files that `fetch` provides, sorted by name."""
        return tuple(SourceFile(f.name, f.size, f.sha256) for f in self._needed())

    def fetch(self, on_progress: OnProgress) -> Path:
        """A folder of the hub's cache with every file of `files`, verified.

        Raises ResourceError when the disk is too small, DownloadError when the hub fails.
        """
        return self._download.run(on_progress)

    def bytes_present(self) -> int:
        """Bytes of `files` that are in the cache already, unfinished ones included."""
        return self._download.bytes_present()

    @property
    def snapshot(self) -> Path:
        """The folder that `fetch` provides, whether or not it is there yet."""
        return self._download.snapshot

    @contextmanager
    def skeleton(self) -> Iterator[Path]:
        """A temporary folder: small files, and weight files without their data.

        Raises DownloadError, and TensorFileError for a file name that leads out of the folder.
        """
        with tempfile.TemporaryDirectory(prefix="mtplx-probe-") as temporary:
            folder = Path(temporary).resolve() / self.name
            folder.mkdir()
            self._copy_side_files(folder)
            self._write_weight_heads(folder)
            for file in self.listing:
                if is_other_format(file.name):
                    # Empty: their presence is all that an inspection looks at.
                    _place(folder, file.name).touch()
            yield folder

    @property
    def _download(self) -> Download:
        return Download(self.repo, self.commit, self._needed(), self.cache)

    def _needed(self) -> tuple[RemoteFile, ...]:
        weights = model_weights((file.name for file in self.listing), self.indexed)
        return tuple(f for f in self.listing if f.name in weights or is_side_file(f.name, f.size))

    def _copy_side_files(self, folder: Path) -> None:
        """Copies, as links would lead out of the folder."""
        files = tuple(file for file in self.listing if is_side_file(file.name, file.size))
        places = {file.name: _place(folder, file.name) for file in files}
        snapshot = Download(self.repo, self.commit, files, self.cache).run(lambda _done, _all: None)
        with hub_errors(self.repo, "copying its small files"):
            for name, place in places.items():
                shutil.copyfile(snapshot / name, place)

    def _write_weight_heads(self, folder: Path) -> None:
        sizes = {file.name: file.size for file in self.listing}
        names = visible_weights(sizes, self.indexed)
        places = [_place(folder, name) for name in names]
        with ThreadPoolExecutor(_HEADER_WORKERS) as pool:
            try:
                heads = pool.map(lambda name: self._read_head(name, sizes[name]), names)
                for place, name, head in zip(places, names, heads, strict=True):
                    _write_sparse(place, head, sizes[name])
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _read_head(self, name: str, size: int) -> bytes:
        with hub_errors(self.repo, f"reading the header of {name}"):
            return read_head(self.repo, self.commit, name, size)


def open_repository(address: Address, *, label: str, cache_dir: Path | None = None) -> HubSource:
    """The repository at the commit that its revision is now.

    Raises DownloadError when repository or revision do not exist or cannot be read.
    """
    repo, revision = address.repo, address.revision
    cache = Path(cache_dir or constants.HF_HUB_CACHE).expanduser().resolve()
    with hub_errors(repo, "listing its files", revision=revision):
        info = retried(
            lambda: HfApi().model_info(
                repo, revision=revision, files_metadata=True, timeout=_LIST_TIMEOUT_S
            )
        )
    commit = info.sha or ""
    if not _COMMIT.fullmatch(commit):
        raise DownloadError(
            f"{constants.ENDPOINT} names no commit for {repo}.",
            hint="Check that HF_ENDPOINT is the address of a hub.",
        )
    listing = tuple(
        sorted((_remote_file(repo, s) for s in info.siblings or ()), key=lambda f: f.name)
    )
    index = tuple(f for f in listing if f.name == INDEX_NAME and is_side_file(f.name, f.size))
    folder = Download(repo, commit, index, cache).run(lambda _done, _all: None)
    return HubSource(label, repo, commit, listing, index_files(folder / INDEX_NAME), cache)


def _remote_file(repo: str, sibling: RepoSibling) -> RemoteFile:
    if sibling.size is None or sibling.blob_id is None:
        raise DownloadError(
            f"{constants.ENDPOINT} lists {sibling.rfilename!a} of {repo} without size or hash.",
            hint="Check that HF_ENDPOINT is the address of a hub.",
        )
    sha256 = sibling.lfs.sha256 if sibling.lfs else None
    return RemoteFile(sibling.rfilename, sibling.size, sibling.blob_id, sha256)


def _place(folder: Path, name: str) -> Path:
    """Where the file `name` goes. Raises TensorFileError when it would leave the folder."""
    place = resolve_inside(folder, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _write_sparse(path: Path, head: bytes, size: int) -> None:
    """A file of `size` bytes that begins with `head` and takes up no more room than that."""
    try:
        path.write_bytes(head)
        os.truncate(path, size)
    except OSError as cause:
        raise ResourceError(
            f"{path} cannot be created with {size} bytes: {cause.strerror or cause}.",
            hint="Set TMPDIR to a folder on a file system with sparse files.",
        ) from cause
