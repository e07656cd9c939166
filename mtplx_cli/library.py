"""The models of this machine and their names: the models folders, and the cache of the hub.

Models folders are mtplx's own and those of the setting `model_dirs`. A model there is called NAME
or, one level deeper, ORG/NAME, and by its whole path where something else has that name. A
snapshot in the cache is called `ORG/NAME`. Of several snapshots the one that the main branch is at
has that name, the others `ORG/NAME@COMMIT`.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtplx.contracts.errors import ModelNotFoundError, UsageError
from mtplx.contracts.folders import models_folder, state_folder
from mtplx.contracts.tensor_header import shortened

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, HFCacheInfo

_COMMIT_DIGITS = 8


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on this machine. `repo` and `commit` belong to snapshots in the hub's cache.

    `is_pending`: a pull of it has begun and not ended.
    """

    name: str
    path: Path
    size_bytes: int
    repo: str | None = None
    commit: str | None = None
    is_pending: bool = False

    @property
    def is_side_revision(self) -> bool:
        """Whether the name of the repository alone means another snapshot, or none."""
        return self.repo is not None and self.name != self.repo

    @property
    def repo_names(self) -> frozenset[str]:
        """The names by which it is meant without doubt, unless others have them too."""
        plain = self.name.replace("--", "/", 1) if self.repo is None else self.repo
        return frozenset({self.name, plain})

    @property
    def short_names(self) -> frozenset[str]:
        """The names without the owner."""
        return frozenset(name.rpartition("/")[2] for name in self.repo_names)


@dataclass(frozen=True, slots=True)
class Library:
    """What was found, sorted by name; `unreadable` says what could not be looked through."""

    models: tuple[FoundModel, ...]
    unreadable: tuple[str, ...] = ()

    def named(self, name: str) -> FoundModel:
        """The model that is listed under exactly `name`. Raises ModelNotFoundError."""
        for model in self.models:
            if model.name == name:
                return model
        raise ModelNotFoundError(
            f"No model of this machine is listed as {shortened(name)!a}.",
            hint="`mtplx models` lists them.",
        )

    def matching(self, text: str) -> tuple[FoundModel, ...]:
        """The models that `text` can mean: by name or repository, else by name without owner.

        Snapshots beside the one that has the repository's name are meant by their own name only.
        """
        found = [m for m in self.models if text in m.repo_names]
        found = found or [m for m in self.models if text in m.short_names]
        current = {m.repo for m in found if not m.is_side_revision}
        return tuple(m for m in found if not m.is_side_revision or m.repo not in current)


def find_models() -> Library:
    """Look through the models folders and the hub's cache; reads no model.

    Raises UsageError when the settings are wrong.
    """
    cached, unreadable = _in_cache()
    local, faults = _in_folders()
    num_named = Counter(model.name for model in (*local, *cached))
    local = [replace(m, name=str(m.path)) if num_named[m.name] > 1 else m for m in local]
    models = sorted((*local, *cached), key=lambda model: model.name)
    return Library(tuple(models), (*faults, *unreadable))


def model_folders() -> tuple[Path, ...]:
    """The models folders, each once; mtplx's own only where it is there."""
    # pydantic takes long to import, and opening a path does without settings.
    from mtplx.config import Config

    own = models_folder()
    places = [own] if own.is_dir() else []
    places += [Path(os.path.expanduser(name)) for name in Config.load().model_dirs]  # noqa: PTH111
    return tuple({place.resolve(): place.absolute() for place in places}.values())


def resolve_model(text: str) -> Path:
    """The folder that `text` means: a path, or the name of a model of this machine.

    Something at the path comes first. A path that is not there is given back as it is, unless it
    looks like ORG/NAME: then ModelNotFoundError. Raises UsageError when several models have the
    name, or its pull has not ended.
    """
    try:
        path = Path(text).expanduser()
        if path.exists() or path.is_absolute() or text.startswith("."):
            return path
    except (OSError, RuntimeError):  # a name too long, an unknown user
        return Path(text)
    matches = find_models().matching(text.removeprefix("hf:"))
    if not matches and "/" not in text:
        return path  # Whoever opens it says that it is not there.
    if not matches:
        raise ModelNotFoundError(
            f"{shortened(text)} does not exist, and no model of this machine has that name.",
            hint="`mtplx models` lists those that are here, `mtplx pull ORG/NAME` fetches one.",
        )
    if len(matches) > 1:
        raise UsageError(
            f"{shortened(text)} can mean {' or '.join(f'{m.name} ({m.path})' for m in matches)}.",
            hint="Give one of these names, or the path.",
        )
    if matches[0].is_pending:
        raise UsageError(
            f"{matches[0].name} is not complete: its download has not ended.",
            hint=f"`mtplx pull {matches[0].repo} --revision {matches[0].commit}` goes on with it.",
        )
    return matches[0].path


def pending_mark(repo: str, commit: str) -> Path:
    """The file that is there from the beginning of a pull until it has ended well."""
    return state_folder() / "pulls" / f"{repo.replace('/', '--')}@{commit}"


def is_model_folder(path: Path) -> bool:
    """Whether `path` is a folder that has, or had, a model in it, sound or not."""
    try:
        return (path / "config.json").is_file() or any(path.glob("*.safetensors"))
    except OSError:
        return False


def bytes_in(folder: Path) -> int:
    """Bytes of the files below `folder`; links inside are not followed, names of one file once."""
    sizes: dict[tuple[int, int], int] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = (Path(place) / name).lstat()
            except FileNotFoundError:
                continue
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def scan_cache() -> "HFCacheInfo | None":
    """What the library finds in the hub's cache; None when there is no cache."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        return scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return None
    except (OSError, ValueError) as cause:
        raise UsageError(
            f"The cache of the hub cannot be read: {cause}.",
            hint="Check HF_HOME and the permissions of the folder.",
        ) from cause


def _in_folders() -> tuple[list[FoundModel], list[str]]:
    """Models, and the folders that cannot be read."""
    models, faults = [], []
    for folder in model_folders():
        try:
            models += [
                FoundModel(path.relative_to(folder).as_posix(), path, bytes_in(path))
                for path in _model_paths(folder)
            ]
        except OSError as cause:
            faults.append(f"{folder} cannot be read: {cause.strerror or cause}")
    return models, faults


def _model_paths(folder: Path) -> Iterator[Path]:
    """Hidden folders, and those in which a build is under way, are left out. Raises OSError."""
    for path in _visible(folder):
        if is_model_folder(path):
            yield path
        elif path.is_dir() and not path.is_symlink() and not (path / "request.json").exists():
            yield from filter(is_model_folder, _visible(path))


def _visible(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _in_cache() -> tuple[tuple[FoundModel, ...], tuple[str, ...]]:
    cache = scan_cache()
    if cache is None:
        return (), ()
    models = tuple(
        model for repo in cache.repos if repo.repo_type == "model" for model in _snapshots(repo)
    )
    # Other things lie in the cache too, and what is wrong with them is not asked for.
    unreadable = (str(warning) for warning in cache.warnings)
    return models, tuple(sorted(text for text in unreadable if "models--" in text))


def _snapshots(repo: "CachedRepoInfo") -> Iterator[FoundModel]:
    for revision in repo.revisions:
        has_plain_name = len(repo.revisions) == 1 or "main" in revision.refs
        commit = revision.commit_hash
        yield FoundModel(
            repo.repo_id if has_plain_name else f"{repo.repo_id}@{commit[:_COMMIT_DIGITS]}",
            revision.snapshot_path,
            revision.size_on_disk,
            repo=repo.repo_id,
            commit=commit,
            is_pending=pending_mark(repo.repo_id, commit).exists(),
        )
