"""Where a checkpoint comes from: a folder on this machine, or a repository at a pinned commit."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mtplx.contracts.errors import ModelNotFoundError, UsageError
from mtplx.contracts.tensor_header import shortened
from mtplx.contracts.tensors import INDEX_NAME
from mtplx.forge.source_files import SourceFile, index_files, is_side_file, model_weights

__all__ = ["LocalSource", "Source", "SourceFile", "open_source"]

OnProgress = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes in all."""


class Source(Protocol):
    """A checkpoint that can be judged without its weights, and fetched."""

    @property
    def label(self) -> str:
        """What the user typed."""
        ...

    @property
    def name(self) -> str:
        """The last part of path or repository; names artifacts."""
        ...

    @property
    def repo(self) -> str | None:
        """ORG/NAME of a repository."""
        ...

    @property
    def commit(self) -> str | None:
        """The commit that everything is read at, 40 hexadecimal digits."""
        ...

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files that `fetch` provides, sorted by name."""
        ...

    def skeleton(self) -> AbstractContextManager[Path]:
        """A folder that `inspect_folder` judges like the whole checkpoint.

        Weight files have their headers and their size, and may have no data.
        """
        ...

    def fetch(self, on_progress: OnProgress) -> Path:
        """A folder with every file of `files`, verified.

        `on_progress` is called in the calling thread about once a second, whether or not anything
        has come, with counts that never fall; what it raises ends the fetch and is passed on.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A checkpoint in a folder of this machine."""

    label: str
    folder: Path

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.resolve().name

    @property
    def repo(self) -> None:
        """A folder has no repository."""
        return None

    @property
    def commit(self) -> None:
        """A folder has no commit."""
        return None

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files that make up the model, sorted by name."""
        paths = [p for depth in ("*", "*/*") for p in self.folder.glob(depth) if p.is_file()]
        sizes = {p.relative_to(self.folder).as_posix(): p.stat().st_size for p in paths}
        weights = model_weights(sizes, index_files(self.folder / INDEX_NAME))
        return tuple(
            SourceFile(name, size)
            for name, size in sorted(sizes.items())
            if name in weights or is_side_file(name, size)
        )

    def skeleton(self) -> AbstractContextManager[Path]:
        """The folder itself."""
        return nullcontext(self.folder)

    def fetch(self, on_progress: OnProgress) -> Path:
        """The folder itself."""
        total = sum(file.size for file in self.files)
        on_progress(total, total)
        return self.folder


def open_source(text: str, *, revision: str | None = None, cache_dir: Path | None = None) -> Source:
    """The source that `text` names: an existing path, `ORG/NAME`, `hf:ORG/NAME`, or a hub URL.

    An existing path comes first. `revision` (branch, tag or commit; default: the main branch) is
    resolved once, and only the commit is read from then on. `cache_dir` replaces the hub's cache.

    Raises:
        UsageError: `text` is no address, or a folder was given together with a revision.
        ModelNotFoundError: `text` looks like a path and nothing is there.
        DownloadError: the repository or the revision cannot be read.
    """
    folder = _existing(text)
    if folder is not None:
        if revision is not None:
            raise UsageError(
                f"A revision ({shortened(revision)}) was given with the local path {text}.",
                hint="Revisions belong to hub repositories: leave it out, or give ORG/NAME.",
            )
        return LocalSource(text, folder)
    # huggingface_hub takes long to import, and local folders do without.
    from mtplx.forge.hub.address import parse_address
    from mtplx.forge.hub.source import open_repository

    address = parse_address(text)
    if address is None:
        raise ModelNotFoundError(
            f"{shortened(text)!r} does not exist and is no hub repository.",
            hint="Give the path of a model folder, or a repository as ORG/NAME.",
        )
    return open_repository(address.at(revision), label=text, cache_dir=cache_dir)


def _existing(text: str) -> Path | None:
    """The path `text` when something is there."""
    try:
        path = Path(text).expanduser()
        return path if text and path.exists() else None
    except (OSError, RuntimeError):  # a name too long, an unknown user
        return None
