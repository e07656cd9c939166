"""Publishing an artifact: every check on this machine, then what differs, in one commit.

Nothing is sent before every check has passed. Until the commit the repository shows what it showed
before; one that had to be created is empty until then.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mtplx.contracts.errors import DownloadError, NotAModelError, UsageError
from mtplx.contracts.files import sha256_file
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Inspection, Tier, inspect_folder
from mtplx.contracts.runtime_contract import ForgeProvenance, RuntimeContract, write_contract
from mtplx.forge.brand import UNVERIFIED
from mtplx.forge.publish import checks
from mtplx.forge.publish.card import make_card, validate_card
from mtplx.forge.publish.checks import CARD_NAME, Check
from mtplx.forge.publish.license import License, find_license
from mtplx.forge.publish.listing import Listing, list_folder
from mtplx.forge.publish.progress import Report, UploadProgress
from mtplx.forge.publish.remote import MovedError, Remote, RemoteState
from mtplx.forge.publish.repo_id import check_repo_id
from mtplx.forge.publish.upload import Changes, Upload, check_arrived, compare, send

_ATTEMPTS: Final = 2


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """What the user asks for. `readme` is a file whose text replaces that of the generated card."""

    folder: Path
    repo: str
    private: bool = False
    license: str | None = None
    readme: Path | None = None
    force_unverified: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """An artifact that was looked at and can be published if every check has passed."""

    request: PublishRequest
    checks: tuple[Check, ...]
    inspection: Inspection
    listing: Listing
    license: License | None
    card: str
    labels: tuple[str, ...]

    def require_passed(self) -> None:
        """Raise UsageError naming every failed check and its fix."""
        failed = [check for check in self.checks if not check.passed]
        if not failed:
            return
        lines = [
            f"- {check.id}: {check.message.removesuffix('.')}. {check.fix}" for check in failed
        ]
        raise UsageError(
            f"{self.request.folder} is not published: {len(failed)} of {len(self.checks)} checks "
            "failed.\n" + "\n".join(line.rstrip() for line in lines),
            hint="Nothing was sent.",
        )

    def files(self) -> dict[str, int]:
        """Names and sizes of what the repository will hold; those of contract and card as they are."""
        visibility = "private" if self.request.private else "public"
        made = {upload.name: upload.size for upload in self.made_files(visibility)}
        return dict(sorted({**self.listing.files, **made}.items()))

    def made_files(self, visibility: str) -> list[Upload]:
        """The files that are not sent as they lie in the folder: card and contract."""
        assert self.license is not None
        record = self.published_as(visibility)
        contract = json.dumps(
            _with_record(self.contract, record).to_json(), indent=2, ensure_ascii=False
        )
        return [
            Upload.of_text(CARD_NAME, self.card),
            Upload.of_text(CONTRACT_NAME, contract + "\n"),
        ]

    def published_as(self, visibility: str) -> dict[str, Any]:
        """`published_to_hf` as the uploaded contract has it.

        Revision and date are in the local contract only: a file cannot name the commit it is
        part of, and one that changed with every attempt would never be found unchanged.
        """
        assert self.license is not None
        repo, spdx = self.request.repo, self.license.spdx
        return {"repo": repo, "visibility": visibility, "license_spdx": spdx}

    @property
    def contract(self) -> RuntimeContract:
        """The contract of the folder."""
        assert self.inspection.contract is not None
        return self.inspection.contract

    @property
    def message(self) -> str:
        """The message of the commit."""
        labels = f" ({', '.join(self.labels)})" if self.labels else ""
        return f"Publish {self.request.repo.split('/')[1]} with mtplx{labels}"


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


def prepare_publication(
    request: PublishRequest, on_progress: Callable[[int, int], None] | None = None
) -> Publication:
    """Run every check on the folder and make the card. Nothing is sent and nothing is written.

    `on_progress` gets bytes hashed and bytes in all. A failed check is a result: see
    `Publication.require_passed`. Raises NotAModelError when there is no folder.
    """
    folder = request.folder
    if not folder.is_dir():
        raise NotAModelError(
            f"{folder} is not a folder.",
            hint="Give the path of an artifact, see `mtplx forge build`.",
        )
    listing = list_folder(folder)
    inspection = _inspect(folder, listing, on_progress)
    readme: str | None = None
    card = ""
    found: License | None = None

    def license_check() -> str:
        nonlocal readme, found
        readme = _read_text(request.readme) if request.readme is not None else None
        found = find_license(folder, request.license, readme)
        return f"the licence is {found.spdx}"

    def card_check() -> str:
        nonlocal card
        if found is None or inspection.contract is None:
            raise UsageError("There is no card without licence and contract.")
        card = make_card(inspection.contract, request.repo, found, labels, body=readme)
        validate_card(card)
        return "the model card is complete"

    labels = _labels(inspection)
    results = [
        checks.outcome_of("repo_id_explicit", lambda: check_repo_id(request.repo)),
        checks.check_contract(inspection),
        *checks.check_files(listing, inspection),
        checks.check_verified(inspection, force_unverified=request.force_unverified),
        checks.outcome_of("license_valid", license_check),
        checks.outcome_of("model_card_valid", card_check),
        *checks.check_texts(listing, inspection, card),
    ]
    return Publication(request, tuple(results), inspection, listing, found, card, labels)


def publish(publication: Publication, token: str, report: Report) -> Published:
    """Upload what differs and commit it once; then record the publication in the local contract.

    Raises:
        UsageError: a check has failed, or the repository holds something else.
        DownloadError: the hub refused or could not be reached; run again to go on.
    """
    publication.require_passed()
    request = publication.request
    remote = Remote(request.repo, token)
    created = remote.create(private=request.private)
    before = remote.read()
    _check_visibility(request, before)
    visibility = "private" if before.is_private else "public"
    uploads = _uploads(publication, visibility)
    changes, after = _bring(
        remote, uploads, before, publication.message, UploadProgress(report, request.repo, created)
    )
    assert publication.license is not None
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


def _inspect(
    folder: Path, listing: Listing, on_progress: Callable[[int, int], None] | None
) -> Inspection:
    """Every byte compared with the contract; a pipe in the place of a file is not even opened."""
    if listing.special:
        error = NotAModelError(
            f"{folder} holds {listing.special[0]}, which is no regular file.", hint="Remove it."
        )
        return Inspection(folder, Tier.INCOMPATIBLE, reasons=(str(error),), error=error)
    return inspect_folder(folder, verify_hashes=True, on_progress=on_progress)


def _labels(inspection: Inspection) -> tuple[str, ...]:
    """What the card and the commit have to say besides what was measured."""
    recorded = inspection.contract.labels if inspection.contract is not None else []
    unverified = [] if inspection.tier is Tier.VERIFIED else [UNVERIFIED]
    return tuple(dict.fromkeys([*unverified, *recorded]))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "it is no UTF-8 text"
        raise UsageError(
            f"--readme-path: {path} cannot be read: {reason}.", hint="Check the path."
        ) from None


def _uploads(publication: Publication, visibility: str) -> list[Upload]:
    """Every file with the hash that was verified; the rest is hashed here."""
    contract, folder = publication.contract, publication.request.folder
    assert contract.content is not None
    verified = {name: record.sha256 for name, record in contract.content.records().items()}
    made = publication.made_files(visibility)
    names = sorted(publication.listing.files.keys() - {upload.name for upload in made})
    uploads = [
        Upload(
            name,
            publication.listing.files[name],
            verified.get(name) or sha256_file(folder / name),
            folder / name,
        )
        for name in names
    ]
    return uploads + made


def _check_visibility(request: PublishRequest, state: RemoteState) -> None:
    if request.private and not state.is_private:
        raise UsageError(
            f"{request.repo} exists and is public, and --private was given.",
            hint="Make it private in its settings on the hub, or give another --repo.",
        )


def _with_record(contract: RuntimeContract, record: dict[str, Any]) -> RuntimeContract:
    provenance = contract.forge_provenance or ForgeProvenance()
    provenance = provenance.model_copy(update={"published_to_hf": record})
    return contract.model_copy(update={"forge_provenance": provenance})


def _record(publication: Publication, done: Published, at: datetime) -> None:
    """Write `published_to_hf` into the local contract; its content, and so its identity, stays."""
    record = {**publication.published_as(done.visibility), "revision": done.revision}
    provenance = publication.contract.forge_provenance
    known = provenance.published_to_hf if provenance is not None else None
    if isinstance(known, dict) and record.items() <= known.items():
        return
    record["uploaded_at"] = at.astimezone(UTC).isoformat(timespec="seconds")
    write_contract(publication.request.folder, _with_record(publication.contract, record))
