"""What has to hold before an artifact is shown to the world. All of it is looked at on this machine."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from mtplx.contracts.content_check import compare_content
from mtplx.contracts.errors import MTPLXError
from mtplx.contracts.identity import CONTRACT_NAME, identity_files
from mtplx.contracts.inspection import Inspection, Tier
from mtplx.contracts.tensor_header import shortened
from mtplx.forge.publish.listing import Listing
from mtplx.forge.publish.repo_id import repo_id_fault
from mtplx.forge.publish.secrets import find_secrets
from mtplx.forge.publish.texts import local_paths, raw_text, visible_text

T = TypeVar("T")

CARD_NAME: Final = "README.md"
MAX_FILE_BYTES: Final = 50_000_000_000
"""The most that the hub takes as one file."""

_DOCUMENTS = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "USE_POLICY*")
_MAX_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `fix` says what to do about a failed one."""

    id: str
    passed: bool
    message: str
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        """Every field by its name."""
        return asdict(self)


def attempt(check_id: str, work: Callable[[], T], says: str) -> tuple[T | None, Check]:
    """What `work` returns, and the check that it makes by raising or not; `says` is for success."""
    try:
        return work(), Check(check_id, True, says)
    except MTPLXError as error:
        return None, Check(check_id, False, error.message, error.hint)


def check_repo_id(repo: str) -> Check:
    """Whether `repo` names an owner and a model."""
    if not (fault := repo_id_fault(repo)):
        return Check("repo_id_explicit", True, f"{repo} is well formed")
    return Check(
        "repo_id_explicit",
        False,
        f"{shortened(repo)!a} is no repository id ({fault})",
        "Expected ORG/NAME with letters, digits, dots, dashes and underscores.",
    )


def check_contract(inspection: Inspection) -> Check:
    """Whether the folder has a contract of ours that covers a head and all files."""
    contract = inspection.contract
    if contract is None:
        fault = f"no usable contract: {inspection.error or f'there is no {CONTRACT_NAME}'}"
    elif contract.is_public:
        fault = f"{CONTRACT_NAME} was written by another tool"
    else:
        missing = [key for key in ("head", "content") if getattr(contract, key) is None]
        fault = f"{CONTRACT_NAME} has no {' and no '.join(missing)}" if missing else ""
    if not fault:
        return Check("runtime_contract_exists", True, f"{CONTRACT_NAME} is complete")
    fix = "Build the artifact with `mtplx forge build`, or `mtplx forge brand` the folder."
    return Check("runtime_contract_exists", False, fault, fix)


def check_files(listing: Listing, inspection: Inspection) -> Iterable[Check]:
    """Whether the folder holds the files of an artifact and nothing else."""
    yield _absent(
        "no_symlinks",
        listing.links,
        "symbolic links",
        "Put the files themselves into the folder: cp -L copies what links lead to.",
    )
    yield _absent(
        "no_special_files", listing.special, "files that are no regular files", "Remove them."
    )
    expected = _expected_files(listing, inspection)
    yield _absent(
        "no_unexpected_files",
        [name for name in listing.files if name not in expected],
        "files that are no part of an artifact",
        "Move them elsewhere; an artifact has no code, no other weights and no hidden files.",
    )
    yield _absent(
        "file_sizes",
        [name for name, size in listing.files.items() if size > MAX_FILE_BYTES],
        f"files larger than the {MAX_FILE_BYTES // 10**9} GB that the hub takes",
        "Build again with a smaller shard_size_gib in the recipe.",
    )


def check_verified(inspection: Inspection, *, force_unverified: bool) -> Check:
    """Whether the artifact is verified and every byte is as it was then, or labelled otherwise.

    Files that are not those of the contract cannot be forced: its evidence is about others.
    """
    if inspection.tier is Tier.VERIFIED:
        return Check("inspect_verified", True, "every byte is as it was verified")
    reason = inspection.reasons[-1] if inspection.reasons else str(inspection.tier)
    if not inspection.can_use_head:
        fix = "Build the artifact again with `mtplx forge build`."
        return Check("inspect_verified", False, f"the folder is {inspection.tier}: {reason}", fix)
    if changed := _changed_files(inspection):
        fix = "Restore them, or build the artifact again; --force-unverified does not cover this."
        message = f"files differ from those of the contract: {_shown(changed)}"
        return Check("inspect_verified", False, message, fix)
    if force_unverified:
        return Check("inspect_verified", True, f"published with the label unverified. {reason}")
    fix = (
        "Run `mtplx forge verify PATH --stamp`, or add --force-unverified to publish it with the "
        "label unverified."
    )
    return Check("inspect_verified", False, reason, fix)


def check_texts(folder: Path, listing: Listing, card: str) -> Iterable[Check]:
    """Whether a text that would be published gives away what is private.

    The folder's own README.md is not read: the new card takes its place.
    """
    texts = {f"{CARD_NAME} (new)": card}
    unread: list[str] = []
    for name in listing.files.keys() - {CARD_NAME}:
        try:
            texts[name] = raw_text(folder / name)
        except (OSError, MTPLXError) as cause:
            unread.append(f"{name}: {cause}")
    visible = {name: visible_text(text) for name, text in texts.items()}
    yield _absent("all_searched", sorted(unread), "files that cannot be searched", "Mend them.")
    yield _absent(
        "no_local_paths",
        [
            f"{name}: {shortened(path)}"
            for name, text in sorted(visible.items())
            for path in local_paths(name, text, folder)
        ],
        "places that name folders or the host of this or another machine",
        "Remove them from the files; contracts that name local paths have to be built again.",
    )
    yield _absent(
        "no_secrets",
        [place for name in sorted(texts) for place in _secrets(name, texts[name], visible[name])],
        "places that look like credentials",
        "Remove them, and revoke every credential that was real.",
    )


def _secrets(name: str, text: str, visible: str) -> list[str]:
    """What the file shows, and what escapes in JSON hide."""
    found = {secret.kind: f"{name} line {secret.line}" for secret in find_secrets(text)}
    if visible is not text:
        found = {secret.kind: name for secret in find_secrets(visible)} | found
    return [f"{place}: {kind}" for kind, place in found.items()]


def _expected_files(listing: Listing, inspection: Inspection) -> frozenset[str]:
    """Files of the model, the contract, the card, and licence texts.

    Of a model that cannot be read every weight file is expected: it has failed already.
    """
    index = inspection.index
    all_weights = tuple(name for name in listing.files if name.endswith(".safetensors"))
    weights = index.files if index is not None else all_weights
    model = {name for _, name in identity_files(inspection.path, weights)}
    documents = {
        name
        for name in listing.files
        if "/" not in name and any(PurePosixPath(name).match(glob) for glob in _DOCUMENTS)
    }
    return frozenset(model | documents | {CONTRACT_NAME, CARD_NAME})


def _changed_files(inspection: Inspection) -> tuple[str, ...]:
    """Small files that differ from the contract; weights that do end an inspection by themselves."""
    contract, index = inspection.contract, inspection.index
    if contract is None or contract.content is None or index is None:
        return ()
    recorded = contract.content.records()
    return compare_content(inspection.path, index.files, recorded, full=False).others


def _absent(check_id: str, found: Iterable[str], what: str, fix: str) -> Check:
    names = list(found)
    if not names:
        return Check(check_id, True, f"no {what}")
    return Check(check_id, False, f"{len(names)} {what}: {_shown(names)}", fix)


def _shown(names: Iterable[str]) -> str:
    listed = [shortened(name) for name in names]
    more = f", and {len(listed) - _MAX_SHOWN} more" if len(listed) > _MAX_SHOWN else ""
    return ", ".join(listed[:_MAX_SHOWN]) + more
