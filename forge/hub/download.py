"""Fetching files of a repository into the hub's cache, watched, verified, and stoppable.

`hf_hub_download` does the transfer; inside one call it goes on where a broken connection stopped.
Complete files are kept between calls, parts of files are not.
"""

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from huggingface_hub import hf_hub_download
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils.sha import git_hash
from huggingface_hub.utils.tqdm import tqdm

from mtplx.contracts.errors import DownloadError, ResourceError
from mtplx.contracts.files import sha256_file
from mtplx.forge.hub.errors import hub_errors
from mtplx.forge.hub.retry import LEFT_BY_LIBRARY, retried

REPORT_EVERY_S = 1.0

# Parts are lost when the process is killed, and every worker has one.
_WORKERS = 4
_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository. `blob_id` is git's hash, which for LFS files is that of a pointer."""

    name: str
    size: int
    blob_id: str
    sha256: str | None = None

    @property
    def etag(self) -> str:
        """The name of its content in the cache."""
        return self.sha256 or self.blob_id

    def has_content_of(self, path: Path) -> bool:
        """Whether the file at `path` is this one, byte for byte."""
        if path.stat().st_size != self.size:
            return False
        if self.sha256 is not None:
            return sha256_file(path) == self.sha256
        return git_hash(path.read_bytes()) == self.blob_id


class Stopped(KeyboardInterrupt):
    """Ends a transfer from inside; the library closes its connections on KeyboardInterrupt."""


@dataclass(frozen=True, slots=True)
class Download:
    """Some files of one commit, and the cache folder that they go to."""

    repo: str
    commit: str
    files: tuple[RemoteFile, ...]
    cache: Path

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def snapshot(self) -> Path:
        """The folder in which the files appear under their names."""
        return self._storage / "snapshots" / self.commit

    @property
    def _storage(self) -> Path:
        return self.cache / repo_folder_name(repo_id=self.repo, repo_type="model")

    def run(self, on_progress: Callable[[int, int], None]) -> Path:
        """Fetch what is not there yet, verify all, and return the snapshot folder.

        `on_progress(bytes there, bytes in all)` is called in this thread about once a second.

        Raises:
            ResourceError: the disk is too small.
            DownloadError: the hub failed for good, or files are not what it announced.
        """
        with hub_errors(self.repo, "preparing the cache"):
            self._remove_leftovers()
            self._check_disk()
        seen = 0
        stop = threading.Event()
        pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="mtplx-download")
        try:
            pending = {pool.submit(self._fetch, file, stop) for file in self.files}
            damaged: list[str] = []
            while pending:
                seen = max(seen, self.bytes_present())
                on_progress(seen, self.num_bytes)
                done, pending = wait(pending, REPORT_EVERY_S, return_when=FIRST_EXCEPTION)
                damaged += [name for future in done if (name := future.result()) is not None]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
        if damaged:
            raise self._mismatch(sorted(damaged))
        on_progress(self.num_bytes, self.num_bytes)
        return self.snapshot

    def bytes_present(self) -> int:
        """Bytes of the files that are in the cache, unfinished ones included."""
        parts: dict[str, int] = {}
        for path in (self._storage / "blobs").glob("*.incomplete"):
            etag = path.name.partition(".")[0]
            parts[etag] = max(parts.get(etag, 0), _size(path))
        return sum(
            file.size if self._is_there(file) else min(file.size, parts.get(file.etag, 0))
            for file in self.files
        )

    def _is_there(self, file: RemoteFile) -> bool:
        return (self.snapshot / file.name).exists() or self._blob(file).exists()

    def _blob(self, file: RemoteFile) -> Path:
        return self._storage / "blobs" / file.etag

    def _fetch(self, file: RemoteFile, stop: threading.Event) -> str | None:
        """Fetch one file; its name when the content is wrong, after removing that content."""

        def transfer() -> Path:
            if stop.is_set():
                raise Stopped
            return Path(
                hf_hub_download(
                    self.repo,
                    file.name,
                    revision=self.commit,
                    cache_dir=self.cache,
                    tqdm_class=_silent_bar(stop),
                )
            )

        with hub_errors(self.repo, f"downloading {file.name}"):
            path = retried(transfer, statuses=LEFT_BY_LIBRARY, sleep=stop.wait)
            if file.has_content_of(path):
                return None
            for copy in (path.resolve(), self._blob(file), path):
                copy.unlink(missing_ok=True)
            return file.name

    def _mismatch(self, names: list[str]) -> DownloadError:
        return DownloadError(
            f"{len(names)} files of {self.repo} at {self.commit} arrived with other content than "
            f"the hub announces: {', '.join(names)}.",
            hint="They were removed from the cache; run the command again to fetch them anew. If "
            "it happens again, a proxy or the disk changes the data.",
        )

    def _check_disk(self) -> None:
        needed = self.num_bytes - self.bytes_present()
        place = self.cache
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
        if needed > free:
            raise ResourceError(
                f"{self.repo} takes {needed / _GIB:.2f} GiB more in {self.cache}, and "
                f"{free / _GIB:.2f} GiB are free.",
                hint="Free some disk space, or set HF_HOME to a folder on a larger disk.",
            )

    def _remove_leftovers(self) -> None:
        """Remove parts that killed downloads left behind; nothing would ever continue them."""
        for part in (self._storage / "blobs").glob("*.incomplete"):
            etag = part.name.partition(".")[0]
            lock = self.cache / ".locks" / self._storage.name / f"{etag}.lock"
            lock.parent.mkdir(parents=True, exist_ok=True)
            try:
                with FileLock(lock, timeout=0):
                    part.unlink(missing_ok=True)
            except Timeout:
                continue  # Another process is downloading it.


def _silent_bar(stop: threading.Event) -> type[tqdm]:
    """A progress bar that shows nothing. The library feeds it every chunk: a place to stop."""

    class SilentBar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> bool | None:  # noqa: ARG002
            if stop.is_set():
                raise Stopped
            return None

    return SilentBar


def _size(path: Path) -> int:
    """Bytes of a file that may vanish at any moment."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
