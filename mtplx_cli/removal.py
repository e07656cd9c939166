"""Taking models off this machine, and never anything that a link leads to."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import DeleteCacheStrategy

from mtplx.contracts.errors import InternalError, UsageError
from mtplx.contracts.files import write_error
from mtplx.library import (
    FoundModel,
    bytes_in,
    is_model_folder,
    model_folders,
    pending_mark,
    scan_cache,
)


@dataclass(frozen=True, slots=True)
class Removal:
    """A model and what goes with it: paths that are removed, and the bytes that are free then.

    `strategy` is the library's own plan for a snapshot in the hub's cache.
    """

    model: FoundModel
    paths: tuple[Path, ...]
    freed_bytes: int
    strategy: DeleteCacheStrategy | None = None

    def run(self) -> None:
        """Carry it out. Raises UsageError when something cannot be removed."""
        if self.strategy is None:
            _remove_folder(self.model.path)
            return
        self.strategy.execute()
        left = [path for path in self.paths if path.exists() or path.is_symlink()]
        if left:
            # The library goes on where it lacks a permission.
            raise UsageError(
                f"{len(left)} paths could not be removed: {', '.join(map(str, left[:3]))}.",
                hint="Check the permissions of the cache.",
            )
        assert self.model.repo is not None, "strategies are for snapshots"
        assert self.model.commit is not None, "strategies are for snapshots"
        pending_mark(self.model.repo, self.model.commit).unlink(missing_ok=True)


def plan_removal(model: FoundModel) -> Removal:
    """What removing `model` takes. Raises UsageError when it is not for mtplx to remove."""
    return _from_folder(model) if model.repo is None else _from_cache(model)


def _from_folder(model: FoundModel) -> Removal:
    path = model.path
    places = model_folders()
    if not {path.parent, path.parent.parent} & {*places} or not is_model_folder(path):
        raise UsageError(
            f"{path} is no model folder in {' or '.join(map(str, places))}.",
            hint="Remove it by hand.",
        )
    return Removal(model, (path,), 0 if path.is_symlink() else bytes_in(path))


def _from_cache(model: FoundModel) -> Removal:
    cache = scan_cache()
    assert model.commit is not None, "snapshots have a commit"
    if cache is None:
        raise InternalError(f"The cache that {model.name} was found in is gone.")
    # The library looks for commits in every repository, and copies of one have the same commits.
    own = frozenset(
        repo for repo in cache.repos if (repo.repo_id, repo.repo_type) == (model.repo, "model")
    )
    strategy = replace(cache, repos=own).delete_revisions(model.commit)
    paths = tuple(sorted((*strategy.repos, *strategy.snapshots, *strategy.refs, *strategy.blobs)))
    # PATH/models--ORG--NAME/snapshots/COMMIT
    repository = model.path.parent.parent
    outside = [path for path in paths if not _is_inside(repository, path)]
    if outside:
        raise UsageError(
            f"{model.name} has links that lead out of {repository}, such as to {outside[0]}.",
            hint="Remove it by hand.",
        )
    return Removal(model, paths, strategy.expected_freed_size, strategy)


def _is_inside(repository: Path, path: Path) -> bool:
    """Whether removing `path` changes nothing outside of `repository`; links are not followed."""
    if path == repository:
        return True
    return path.is_relative_to(repository) and (
        path.parent.resolve().is_relative_to(repository.resolve())
    )


def _remove_folder(path: Path) -> None:
    """Rename first: a removal that is stopped must not leave half a model under its name."""
    try:
        if path.is_symlink():
            path.unlink()
            return
        doomed = path.with_name(f".{path.name}.removing")
        if doomed.exists():
            shutil.rmtree(doomed)
        path.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as cause:
        raise write_error(path, cause) from cause
