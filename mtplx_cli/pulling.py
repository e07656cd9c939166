"""Getting a model from the hub: into its cache, or into a plain folder that appears when it is whole.

The cache is the default, as other tools find the model there and nothing is stored twice.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import DownloadError, ModelNotFoundError, UsageError
from mtplx.contracts.files import sync_folder, write_error, write_text
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.contracts.paths import resolve_inside
from mtplx.contracts.tensor_header import shortened
from mtplx.forge.hub.address import Address, parse_address
from mtplx.forge.hub.source import HubSource, open_repository
from mtplx.library import pending_mark

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Pull:
    """What a pull will do, or has done.

    `found` judges the model: before the transfer from its headers, afterwards from the files.
    `missing_bytes` are those that have to come over the network.
    """

    address: Address
    source: HubSource
    parent: Path | None
    missing_bytes: int
    found: Inspection

    @property
    def target(self) -> Path:
        """The folder of the model."""
        if self.parent is None:
            return self.source.snapshot
        return self.parent / self.source.repo.replace("/", "--")

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole model."""
        return sum(file.size for file in self.source.files)

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable account."""
        return {
            "repo": self.source.repo,
            "commit": self.source.commit,
            "path": str(self.target),
            "total_bytes": self.total_bytes,
            "download_bytes": self.missing_bytes,
            "files": {file.name: file.size for file in self.source.files},
            "family": self.found.family.name if self.found.family else None,
            "tier": self.found.tier.value,
            "can_use_head": self.found.can_use_head,
            "reasons": list(self.found.reasons),
            "error": self.found.error.to_json() if self.found.error else None,
        }


def plan_pull(text: str, revision: str | None, parent: Path | None) -> Pull:
    """Look at the repository that `text` names; nothing of what is read stays on the disk.

    Raises UsageError for what is no address, or a target that is there already, and DownloadError
    when the repository cannot be read.
    """
    address = parse_address(text)
    if address is None:
        raise UsageError(
            f"{shortened(text)!a} is no repository of the hub.",
            hint="Give ORG/NAME, hf:ORG/NAME or its address on the web.",
        )
    address = address.at(revision)
    with tempfile.TemporaryDirectory(prefix="mtplx-pull-") as temporary:
        looked = open_repository(address, label=text, cache_dir=Path(temporary))
        with looked.skeleton() as folder:
            found = inspect_folder(folder, check_content=False)
    source = replace(looked, cache=_cache_for(looked.repo, parent))
    missing = sum(file.size for file in source.files) - source.bytes_present()
    pull = Pull(address, source, parent, missing, found)
    if parent is not None and (pull.target.exists() or pull.target.is_symlink()):
        raise UsageError(
            f"{pull.target} is there already.", hint="Remove it, or choose another --dir."
        )
    return pull


def run_pull(pull: Pull, on_progress: OnProgress) -> Pull:
    """Fetch and verify what is missing, and judge the whole model.

    Complete files are kept when it is stopped, and the same pull goes on with the others.

    Raises:
        ModelNotFoundError: nothing in the repository is of use.
        MTPLXError: what makes the model unusable, told before anything is fetched.
        ResourceError: the disk is too small.
        DownloadError: the hub failed for good, or sent other content than it announces.
    """
    if pull.found.error is not None:
        raise pull.found.error
    if not pull.source.files:
        raise ModelNotFoundError(f"{pull.source.repo} has no files that mtplx reads.")
    if pull.parent is None:
        _fetch_to_cache(pull, on_progress)
    else:
        _fetch_to_folder(pull, on_progress)
    return replace(pull, found=inspect_folder(pull.target))


def _cache_for(repo: str, parent: Path | None) -> Path:
    from huggingface_hub import constants

    if parent is None:
        return Path(constants.HF_HUB_CACHE).expanduser().resolve()
    return parent.resolve() / f".{repo.replace('/', '--')}.pulling"


def _fetch_to_cache(pull: Pull, on_progress: OnProgress) -> None:
    mark = pending_mark(pull.source.repo, pull.source.commit)
    _make_folder(mark.parent)
    if pull.missing_bytes:
        write_text(mark, "")
    try:
        pull.source.fetch(on_progress)
    except DownloadError:
        # Files that were there can have turned out damaged, and are gone now.
        write_text(mark, "")
        raise
    _point_revision(pull)
    mark.unlink(missing_ok=True)


def _point_revision(pull: Pull) -> None:
    """Note in the cache what commit the revision is at, as the hub's library does."""
    source, revision = pull.source, pull.address.revision or "main"
    if source.commit.startswith(revision):
        return
    refs = source.snapshot.parent.parent / "refs"
    place = resolve_inside(refs, revision)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source.commit)
    except OSError as cause:
        raise write_error(place, cause) from cause


def _fetch_to_folder(pull: Pull, on_progress: OnProgress) -> None:
    """Fetch into a cache beside the target, gather the files there, and rename them into place."""
    cache = pull.source.cache
    _make_folder(cache)
    snapshot = pull.source.fetch(on_progress)
    gathered = cache / "model"
    try:
        shutil.rmtree(gathered, ignore_errors=True)
        for file in pull.source.files:
            place = resolve_inside(gathered, file.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy((snapshot / file.name).resolve(), place)
        gathered.rename(pull.target)
        sync_folder(pull.target.parent)
        shutil.rmtree(cache)
    except OSError as cause:
        raise write_error(pull.target, cause) from cause


def _link_or_copy(file: Path, place: Path) -> None:
    """Two names of one file, where the file system knows such: no room is taken twice."""
    try:
        place.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, place)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise write_error(folder, cause) from cause
