"""A repository of the hub as something to publish to."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from mtplx.contracts.errors import DownloadError, MTPLXError
from mtplx.contracts.tensor_header import shortened
from mtplx.forge.hub.download import RemoteFile
from mtplx.forge.hub.errors import hub_errors
from mtplx.forge.hub.retry import PASSING_STATUS, retried

CommitOperation = CommitOperationAdd | CommitOperationDelete

_EXISTS = 409
_MOVED = (409, 412)
"""What the hub answers to a commit when the head is not its parent, or is about to be another."""


@dataclass(frozen=True, slots=True)
class RemoteState:
    """What a repository holds at one commit."""

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
        self._token = token
        self._api = HfApi(token=token)

    def create(self, *, private: bool) -> bool:
        """Create the repository; false when somebody has done so meanwhile."""
        # None leaves the default of an organisation as it is, which may be private.
        wanted = True if private else None
        with self._telling("creating it"):
            try:
                retried(lambda: self._api.create_repo(self.repo, private=wanted))
            except HfHubHTTPError as error:
                if error.response.status_code == _EXISTS:
                    return False
                raise
        return True

    def find(self) -> RemoteState | None:
        """The state at the head of the main branch, None when there is no such repository."""
        with self._telling("looking it up"):
            try:
                return self._state("main")
            except RepositoryNotFoundError as error:
                if error.response.status_code == 404:
                    return None
                raise

    def read(self, revision: str = "main") -> RemoteState:
        """The state at `revision` of a repository that exists."""
        with self._telling("listing its files"):
            return self._state(revision)

    def upload(self, operation: CommitOperationAdd) -> None:
        """Send the content of one added file, unless the hub has it or it is part of the commit."""
        with self._telling(f"sending {operation.path_in_repo}"):
            self._api.preupload_lfs_files(self.repo, [operation], free_memory=False)

    def commit(self, operations: list[CommitOperation], message: str, parent: str) -> str:
        """Make one commit on top of `parent`. Raises MovedError when the head is another by now."""
        with self._telling("committing"):
            try:
                info = self._api.create_commit(
                    self.repo, operations, commit_message=message, parent_commit=parent
                )
            except HfHubHTTPError as error:
                if error.response.status_code in _MOVED:
                    raise MovedError from None
                raise
        return info.oid

    def _state(self, revision: str) -> RemoteState:
        info = retried(
            lambda: self._api.model_info(self.repo, revision=revision, files_metadata=True)
        )
        if info.sha is None:
            raise DownloadError(f"The hub names no commit of {self.repo}.")
        files = {
            # Without size and hash a file is unlike any other, and is sent anew.
            file.rfilename: RemoteFile(
                file.rfilename,
                -1 if file.size is None else file.size,
                file.blob_id or "",
                file.lfs.sha256 if file.lfs else None,
            )
            for file in info.siblings or ()
        }
        modified_at = info.last_modified or datetime.now(UTC)
        return RemoteState(info.sha, bool(info.private), modified_at, files)

    @contextmanager
    def _telling(self, doing: str) -> Iterator[None]:
        """`hub_errors` for writing; the library's own error, which may quote a request, is dropped."""
        try:
            with hub_errors(self.repo, doing):
                yield
        except MTPLXError as error:
            cause = _http_cause(error)
            raise (self._refusal(cause, doing) if cause else None) or error from None

    def _refusal(self, error: HfHubHTTPError, doing: str) -> DownloadError | None:
        """What a writer has to know of an answer that will not pass by itself."""
        status, said = error.response.status_code, self._said(error)
        if status == 401:
            return DownloadError(
                f"The hub does not accept the token (HTTP 401 for {self.repo}).",
                hint="It may be mistyped, expired or revoked: create one with write access.",
            )
        if status == 403:
            return DownloadError(
                f"The hub forbids {doing} with this token (HTTP 403 for {self.repo}{said}).",
                hint="Use a token with write access, of a user or organisation that owns the name.",
            )
        if 400 <= status < 500 and status not in (404, *PASSING_STATUS):
            return DownloadError(
                f"{self.repo}: the hub refused the request (HTTP {status} while {doing}{said}).",
                hint="Correct what it says and publish again; finished files are not sent again.",
            )
        return None

    def _said(self, error: HfHubHTTPError) -> str:
        """The hub's reason, without addresses; nothing when it quotes the token."""
        text = error.server_message or ""
        words = [word for word in text.split() if "://" not in word]
        return f": {shortened(' '.join(words))}" if words and self._token not in text else ""


def _http_cause(error: BaseException) -> HfHubHTTPError | None:
    """The answer of the hub under what was raised because of it."""
    cause = error.__cause__
    while cause is not None and not isinstance(cause, HfHubHTTPError):
        cause = cause.__cause__
    return cause
