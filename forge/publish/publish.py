"""Publishing an artifact: every check on this machine, then what differs, in one commit.

Nothing is sent before every check has passed. Until the commit the repository shows what it showed
before; one that had to be created is empty until then.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from mtplx.contracts.errors import DownloadError, UsageError
from mtplx.contracts.runtime_contract import write_contract
from mtplx.forge.publish.preparation import Publication, PublishRequest
from mtplx.forge.publish.progress import Report, UploadProgress
from mtplx.forge.publish.remote import MovedError, Remote, RemoteState
from mtplx.forge.publish.upload import Changes, Upload, check_arrived, compare, send

_ATTEMPTS: Final = 2


@dataclass(frozen=True, slots=True)
class Published:
    """Where the artifact is now. `changes` is empty when the repository held all of it already."""

    repo: str
    revision: str
    visibility: str
    license_spdx: str
    repo_created: bool
    changes: Changes

    def to_json(self) -> dict[str, Any]:
        """The keys of `published_to_hf`, and what was sent, left and deleted."""
        return {
            "repo": self.repo,
            "revision": self.revision,
            "visibility": self.visibility,
            "license_spdx": self.license_spdx,
            "repo_created": self.repo_created,
            "committed": bool(self.changes),
            "bytes_uploaded": self.changes.size,
            "files_uploaded": [upload.name for upload in self.changes.added],
            "files_unchanged": list(self.changes.unchanged),
            "files_deleted": list(self.changes.deleted),
        }


def publish(publication: Publication, token: str, report: Report) -> Published:
    """Upload what differs and commit it once; then record the publication in the local contract.

    Raises:
        UsageError: a check has failed, or the repository holds something else.
        DownloadError: the hub refused or could not be reached; run again to go on.
    """
    publication.require_passed()
    assert publication.license is not None
    request = publication.request
    remote = Remote(request.repo, token)
    found = remote.find()
    created = found is None and remote.create(private=request.private)
    before = found or remote.read()
    _check_visibility(request, before)
    visibility = "private" if before.is_private else "public"
    uploads = publication.uploads(visibility)
    progress = UploadProgress(report, request.repo, created)
    changes, after = _bring(remote, uploads, before, publication.message, progress)
    done = Published(
        request.repo, after.commit, visibility, publication.license.spdx, created, changes
    )
    _record(publication, done, after.modified_at)
    return done


def _bring(
    remote: Remote,
    uploads: list[Upload],
    state: RemoteState,
    message: str,
    progress: UploadProgress,
) -> tuple[Changes, RemoteState]:
    """Bring the repository to `uploads`; once more when somebody else commits meanwhile."""
    for _ in range(_ATTEMPTS):
        changes = compare(uploads, state, remote.repo)
        progress.start(changes)
        if not changes:
            progress.finish(state.commit)
            return changes, state
        try:
            commit = send(remote, changes, state.commit, message, progress.advance)
        except MovedError:
            state = remote.read()
            continue
        state = remote.read(commit)
        check_arrived(uploads, state, remote.repo)
        progress.finish(commit)
        return changes, state
    raise DownloadError(
        f"{remote.repo} was changed by others while it was published, {_ATTEMPTS} times.",
        hint="Publish again when nobody else does; what was sent is not sent again.",
    )


def _check_visibility(request: PublishRequest, state: RemoteState) -> None:
    if request.private and not state.is_private:
        raise UsageError(
            f"{request.repo} exists and is public, and --private was given.",
            hint="Make it private in its settings on the hub, or give another --repo.",
        )


def _record(publication: Publication, done: Published, at: datetime) -> None:
    """Write `published_to_hf` into the local contract; its content, and so its identity, stays."""
    record = {**publication.record(done.visibility), "revision": done.revision}
    provenance = publication.contract.forge_provenance
    known = provenance.published_to_hf if provenance is not None else None
    if isinstance(known, dict) and record.items() <= known.items():
        return
    record["uploaded_at"] = at.astimezone(UTC).isoformat(timespec="seconds")
    write_contract(publication.request.folder, publication.contract_with(record))
