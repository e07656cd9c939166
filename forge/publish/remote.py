"""A repository of the hub as something to publish to."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from mtplx.contracts.errors import DownloadError, MTPLXError
from mtplx.forge.hub.errors import hub_errors
from mtplx.forge.hub.retry import retried

CommitOperation = CommitOperationAdd | CommitOperationDelete


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file at a commit. Large files have a sha256, all have the id of their git blob."""

    size: int
    blob_id: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class RemoteState:
    """What a repository holds at its head."""

    commit: str
    is_private: bool
    modified_at: datetime
    files: dict[str, RemoteFile]


class MovedError(Exception):
    """Somebody else committed since the state was read."""


class Remote:
    """One repository, addressed with one token. Every failure is an MTPLXError without the token."""

    def __init__(self, repo: str, token: str) -> None:
        self.repo = repo
        self.api = HfApi(token=token)

    def create(self, *, private: bool) -> bool:
        """Make sure that the repository exists; whether it had to be created."""
        with publishing(self.repo, "looking it up"):
            try:
                retried(lambda: self.api.model_info(self.repo))
                return False
            except RepositoryNotFoundError:
                pass
        with publishing(self.repo, "creating it"):
            # None leaves the default of an organisation as it is, which may be private.
            wanted = True if private else None
            retried(lambda: self.api.create_repo(self.repo, private=wanted, exist_ok=True))
        return True

    def read(self, revision: str = "main") -> RemoteState:
        """The state at `revision`."""
        with publishing(self.repo, "listing its files"):
            info = retried(lambda: self.api.model_info(self.repo, revision=revision))
            if info.sha is None:
                raise DownloadError(f"The hub names no commit of {self.repo}.")
            commit = info.sha
            tree = retried(
                lambda: list(self.api.list_repo_tree(self.repo, recursive=True, revision=commit))
            )
        files = {entry.path: _remote_file(entry) for entry in tree if isinstance(entry, RepoFile)}
        modified_at = info.last_modified or datetime.now(UTC)
        return RemoteState(commit, bool(info.private), modified_at, files)

    def upload(self, operation: CommitOperationAdd) -> None:
        """Send the content of one added file, unless the hub has it or it is part of the commit."""
        with publishing(self.repo, f"sending {operation.path_in_repo}"):
            self.api.preupload_lfs_files(self.repo, [operation], free_memory=False)

    def commit(self, operations: list[CommitOperation], message: str, parent: str) -> str:
        """Make one commit on top of `parent`. Raises MovedError when the head is another by now."""
        with publishing(self.repo, "committing"):
            try:
                info = self.api.create_commit(
                    self.repo, operations, commit_message=message, parent_commit=parent
                )
            except HfHubHTTPError as error:
                if error.response.status_code == 412:
                    raise MovedError from None
                raise
        return info.oid


@contextmanager
def publishing(repo: str, doing: str) -> Iterator[None]:
    """`hub_errors` for writing; the library's own error, which may quote a request, is dropped."""
    try:
        with hub_errors(repo, doing):
            yield
    except MTPLXError as error:
        cause = error.__cause__
        status = cause.response.status_code if isinstance(cause, HfHubHTTPError) else None
        raise _refusal(repo, status) or error from None


def _refusal(repo: str, status: int | None) -> DownloadError | None:
    if status == 401:
        return DownloadError(
            f"The hub does not accept the token (HTTP 401 for {repo}).",
            hint="It may be mistyped, expired or revoked: create one with write access.",
        )
    if status == 403:
        return DownloadError(
            f"The token may not write to {repo} (HTTP 403).",
            hint="Use a token with write access, of a user or organisation that owns the name.",
        )
    return None


def _remote_file(entry: RepoFile) -> RemoteFile:
    sha256 = entry.lfs.sha256 if entry.lfs is not None else None
    return RemoteFile(entry.size, entry.blob_id, sha256)
