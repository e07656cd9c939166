"""An artifact that is about to be published: what was found out about it on this machine."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import NotAModelError, UsageError
from mtplx.contracts.files import sha256_file
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Inspection, Tier, inspect_folder
from mtplx.contracts.runtime_contract import ForgeProvenance, RuntimeContract
from mtplx.forge.brand import UNVERIFIED
from mtplx.forge.publish.card import make_card, validate_card
from mtplx.forge.publish.checks import (
    CARD_NAME,
    Check,
    attempt,
    check_contract,
    check_files,
    check_repo_id,
    check_texts,
    check_verified,
)
from mtplx.forge.publish.license import License, find_license
from mtplx.forge.publish.listing import Listing, list_folder
from mtplx.forge.publish.upload import Upload


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

    @property
    def contract(self) -> RuntimeContract:
        """The contract of the folder."""
        assert self.inspection.contract is not None
        return self.inspection.contract

    @property
    def message(self) -> str:
        """The message of the commit."""
        labels = f" ({', '.join(self.labels)})" if self.labels else ""
        return f"Publish {self.request.repo.rpartition('/')[2]} with mtplx{labels}"

    def files(self) -> dict[str, int]:
        """Names and sizes of what the repository will hold."""
        made = self._made_files("private" if self.request.private else "public")
        return dict(sorted({**self.listing.files, **{m.name: m.size for m in made}}.items()))

    def uploads(self, visibility: str) -> list[Upload]:
        """Every file with the hash that was verified; what the contract does not cover is hashed."""
        assert self.contract.content is not None
        folder, sizes = self.request.folder, self.listing.files
        verified = {name: rec.sha256 for name, rec in self.contract.content.records().items()}
        made = self._made_files(visibility)
        return made + [
            Upload(name, sizes[name], verified.get(name) or sha256_file(path), path)
            for name in sorted(sizes.keys() - {file.name for file in made})
            for path in [folder / name]
        ]

    def record(self, visibility: str) -> dict[str, Any]:
        """`published_to_hf` as the uploaded contract has it.

        Revision and date are in the local contract only: a file cannot name the commit it is
        part of, and one that changed with every attempt would never be found unchanged.
        """
        assert self.license is not None
        repo, spdx = self.request.repo, self.license.spdx
        return {"repo": repo, "visibility": visibility, "license_spdx": spdx}

    def contract_with(self, record: dict[str, Any]) -> RuntimeContract:
        """The contract with `record` as its `published_to_hf`, and with the labels of the card."""
        provenance = self.contract.forge_provenance or ForgeProvenance()
        provenance = provenance.model_copy(update={"published_to_hf": record})
        changes = {"forge_provenance": provenance, "labels": list(self.labels)}
        return self.contract.model_copy(update=changes)

    def _made_files(self, visibility: str) -> list[Upload]:
        """The files that are not sent as they lie in the folder: card and contract."""
        contract = self.contract_with(self.record(visibility)).to_json()
        text = json.dumps(contract, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return [Upload.of_text(CARD_NAME, self.card), Upload.of_text(CONTRACT_NAME, text)]


def prepare_publication(
    request: PublishRequest, on_progress: Callable[[int, int], None] | None = None
) -> Publication:
    """Run every check on the folder and make the card. Nothing is sent and nothing is written.

    `on_progress` gets bytes hashed and bytes in all. A failed check is a result: see
    `Publication.require_passed`.

    Raises:
        NotAModelError: there is no folder, or it cannot be listed.
        UsageError: the file of `readme` cannot be read.
    """
    folder = request.folder
    if not folder.is_dir():
        raise NotAModelError(
            f"{folder} is not a folder.",
            hint="Give the path of an artifact, see `mtplx forge build`.",
        )
    listing = list_folder(folder)
    inspection = _inspect(folder, listing, on_progress)
    labels = _labels(inspection)
    readme = _read_text(request.readme) if request.readme is not None else None
    found, license_check = attempt(
        "license_valid",
        lambda: find_license(folder, request.license, readme),
        "the licence is known",
    )
    card, card_check = attempt(
        "model_card_valid",
        lambda: _card(request.repo, inspection, found, labels, readme),
        "the model card is complete",
    )
    checks = (
        check_repo_id(request.repo),
        check_contract(inspection),
        *check_files(listing, inspection),
        check_verified(inspection, force_unverified=request.force_unverified),
        license_check,
        card_check,
        *check_texts(folder, listing, card or ""),
    )
    return Publication(request, checks, inspection, listing, found, card or "", labels)


def _card(
    repo: str,
    inspection: Inspection,
    license_: License | None,
    labels: tuple[str, ...],
    readme: str | None,
) -> str:
    if license_ is None or inspection.contract is None:
        raise UsageError(
            "There is no model card without a licence and a contract.",
            hint="Correct what the other checks say.",
        )
    card = make_card(inspection.contract, repo, license_, labels, body=readme)
    validate_card(card)
    return card


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
    """What card, contract and commit have to say besides what was measured.

    Whether the artifact is unverified is judged anew, whatever the contract says.
    """
    recorded = inspection.contract.labels if inspection.contract is not None else []
    unverified = [] if inspection.tier is Tier.VERIFIED else [UNVERIFIED]
    return tuple(dict.fromkeys([*unverified, *(la for la in recorded if la != UNVERIFIED)]))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "it is no UTF-8 text"
        raise UsageError(
            f"--readme-path: {path} cannot be read: {reason}.", hint="Check the path."
        ) from None
