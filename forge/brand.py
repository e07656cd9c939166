"""Writing the contract: what a head is, how that was found, what was proven, and of which bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mtplx.contracts.arch_ids import arch_id
from mtplx.contracts.contract_parts import WINNING_VERDICT
from mtplx.contracts.errors import CorruptModelError, HeadMissingError, UsageError
from mtplx.contracts.family import Family, Wiring
from mtplx.contracts.head_names import HeadTensors
from mtplx.contracts.identity import CONTRACT_NAME, content_identity
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.contracts.json_object import read_object
from mtplx.contracts.public_format import MIN_ENGINE_VERSION, PUBLIC_PROFILE
from mtplx.contracts.runtime_contract import (
    SCHEMA_VERSION,
    Content,
    RuntimeContract,
    public_wiring,
    read_contract,
    write_contract,
)
from mtplx.version import __version__

if TYPE_CHECKING:
    from mtplx.forge.verify.verify import Verification

DEGRADED: Final = "degraded-mtp"
UNCALIBRATED: Final = "uncalibrated"
UNVERIFIED: Final = "unverified"
# What a contract says before depths were tested; the public tool has no more.
_USUAL_DEPTH = 3
_SAMPLER_KEYS = ("temperature", "top_p", "top_k")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found out about an artifact so far, as the phases recorded it.

    `head` has `quantization` and `policy` of the written head; `calibration` is
    `Calibration.to_json()`, `verification` what `Verification.contract_fields()` gives.
    """

    head: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] | None = None
    verification: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    labels: Sequence[str] = ()


def brand(folder: Path, evidence: Evidence, *, with_content: bool) -> RuntimeContract:
    """Write the contract of the artifact in `folder` from `evidence`, and return it.

    Without content it is a draft: enough to load the artifact by, and never verified.

    Raises:
        MTPLXError: the folder can't be run.
        HeadMissingError: it has no head to write a contract for.
    """
    (folder / CONTRACT_NAME).unlink(missing_ok=True)
    inspection = inspect_folder(folder, check_content=False)
    inspection.raise_if_unrunnable()
    family, head, index = inspection.family, inspection.head_tensors, inspection.index
    if family is None or head is None or index is None or not inspection.can_use_head:
        raise HeadMissingError(
            f"{folder} has no MTP head that runs, and so nothing to make a contract of.",
            hint="`mtplx inspect` says what it is.",
        )
    values = _spine(folder, inspection, family, evidence)
    values["head"] = _head(inspection, family, head, evidence)
    values.update(evidence.verification or {})
    if with_content:
        values["content"] = Content.of(content_identity(folder, index.files))
    values["labels"] = _labels(evidence, values)
    contract = RuntimeContract.model_validate(values)
    write_contract(folder, contract)
    return contract


def require_stampable(folder: Path) -> tuple[RuntimeContract, Inspection]:
    """The contract of `folder` and what its weights, compared byte by byte with it, are found to be.

    Raises:
        UsageError: there is no contract of this format that a verification can be put into.
        CorruptModelError: the weights are not those that the contract was written for.
    """
    contract = read_contract(folder)
    if contract is None or contract.is_public:
        raise UsageError(
            f"{folder} has no contract of mtplx to stamp.",
            hint="`mtplx forge brand PATH` writes one; `mtplx forge build` makes an artifact.",
        )
    inspection = inspect_folder(folder, verify_hashes=True)
    inspection.raise_if_unrunnable()
    return contract, inspection


def stamp(folder: Path, verification: "Verification") -> RuntimeContract:
    """Put a new verification into the contract of `folder`, for exactly the bytes that lie there.

    Raises as `require_stampable` does.
    """
    contract, inspection = require_stampable(folder)
    assert inspection.index is not None
    fields = dict(verification.contract_fields())
    fields["content"] = Content.of(content_identity(folder, inspection.index.files))
    fields["mtplx_version"] = __version__
    kept = [label for label in contract.labels if label != UNVERIFIED]
    fields["labels"] = _labels(Evidence(labels=kept, verification=fields), fields)
    stamped = RuntimeContract.model_validate({**contract.model_dump(), **fields})
    write_contract(folder, stamped)
    return stamped


def head_quantization(
    head: HeadTensors, recorded: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]] | None:
    """Bits, group size and mode of every packed module of the head, by its relative name.

    `recorded` has the usual values, and by module path those that differ.
    """
    packed = sorted(
        name.removesuffix(".scales") for name in head.names.values() if name.endswith(".scales")
    )
    if not packed:
        return None
    if recorded is None:
        raise CorruptModelError(
            f"The head has scales for {packed[0]}, and nothing records how it is packed.",
            hint="Build the artifact again from its source.",
        )
    keys = ("bits", "group_size", "mode")
    found: dict[str, dict[str, Any]] = {}
    for module in packed:
        own = recorded.get(module)
        spec = {**recorded, **own} if isinstance(own, Mapping) else recorded
        found[module] = {key: spec[key] for key in keys if key in spec}
    return found


def _spine(
    folder: Path, inspection: Inspection, family: Family, evidence: Evidence
) -> dict[str, Any]:
    wiring = _wiring(family, evidence)
    return {
        "schema_version": SCHEMA_VERSION,
        "mtplx_version": __version__,
        "min_engine_version": MIN_ENGINE_VERSION,
        "arch_id": arch_id(family),
        "mtp_depth_max": family.max_depth or _USUAL_DEPTH,
        "recommended_profile": PUBLIC_PROFILE,
        "sampler": _sampler(folder),
        "vision": inspection.vision,
        "mtp_contract": public_wiring(wiring),
        "calibration": evidence.calibration,
        "forge_provenance": dict(evidence.provenance) or None,
    }


def _head(
    inspection: Inspection, family: Family, head: HeadTensors, evidence: Evidence
) -> dict[str, Any]:
    relative = set(head.names.values())
    encoding = inspection.norm_encoding
    return {
        "layout": family.layout,
        "prefix": head.prefix,
        **asdict(_wiring(family, evidence)),
        "norm_encoding": evidence.head.get("norm_encoding", encoding),
        "mtp_layers": head.num_layers,
        "own_embedding": any(name.endswith("embed_tokens.weight") for name in relative),
        "own_output": any(
            name.endswith(("shared_head.head.weight", "lm_head.weight")) for name in relative
        ),
        "policy": evidence.head.get("policy"),
        "quantization": head_quantization(head, evidence.head.get("quantization")),
    }


def _wiring(family: Family, evidence: Evidence) -> Wiring:
    """What calibration found, else the family's default."""
    if evidence.calibration is None:
        return family.wiring
    return Wiring(**evidence.calibration["wiring"])


def _labels(evidence: Evidence, values: Mapping[str, Any]) -> list[str]:
    """What users must be told: what was asked for, and a verification that is missing or lost."""
    labels = list(evidence.labels)
    exactness, speed = values.get("exactness") or {}, values.get("speed_evidence") or {}
    if not exactness.get("passed") or speed.get("verdict") != WINNING_VERDICT:
        labels.append(UNVERIFIED)
    return labels


def _sampler(folder: Path) -> dict[str, Any] | None:
    """The sampling that generation_config.json recommends, None when it recommends none."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return None
    found = read_object(path)
    if found.get("do_sample") is False:
        return None
    values = {key: found[key] for key in _SAMPLER_KEYS if isinstance(found.get(key), int | float)}
    return values or None
