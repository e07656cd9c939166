"""The chosen model: whole, proven, usable with MTP, and small enough."""

import shlex
from typing import NamedTuple

from mtplx.contracts.errors import MTPLXError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Inspection, Tier
from mtplx.runtime.diagnostics.catalogue import failed, passed, skipped, warned
from mtplx.runtime.diagnostics.report import Check

_IDS = ("model.integrity", "model.contract", "model.tier", "model.memory")
_WITH_USABLE_HEAD = (Tier.VERIFIED, Tier.FAMILY_COMPATIBLE_UNVERIFIED)


class Memory(NamedTuple):
    """Bytes that are available and in all, of the memory that holds the weights."""

    available: int
    total: int
    name: str = "memory"


def check_inspection(inspection: Inspection, memory: Memory) -> list[Check]:
    """All that an inspection says; after an error only that."""
    if inspection.error is not None:
        return unusable(inspection.error, f"mtplx inspect {shlex.quote(str(inspection.path))}")
    return [
        passed("model.integrity", "; ".join([str(inspection.path), *inspection.warnings])),
        check_contract(inspection),
        check_tier(inspection),
        check_fit(inspection.size_bytes, memory),
    ]


def unusable(error: MTPLXError, command: str = "") -> list[Check]:
    """The checks of a model that cannot be looked at any further."""
    first, *others = _IDS
    return [
        failed(first, error.message, error.hint, command, exit_code=error.exit_code),
        *(skipped(check_id, "the model cannot be used") for check_id in others),
    ]


def check_contract(inspection: Inspection) -> Check:
    """Whether what the contract claims is proven."""
    contract = inspection.contract
    if contract is None:
        return passed("model.contract", f"no {CONTRACT_NAME}: nothing is claimed of this copy")
    faults = contract.unproven()
    if not faults:
        return passed("model.contract", f"format {contract.schema_version}, evidence complete")
    path = shlex.quote(str(inspection.path))
    fix = "Prove it on this machine; until then the model counts as unverified."
    return warned("model.contract", "; ".join(faults), fix, f"mtplx forge verify {path}")


def check_tier(inspection: Inspection) -> Check:
    """Whether MTP can make this model faster."""
    observed = f"{inspection.tier}: {inspection.reasons[-1]}"
    if inspection.tier in _WITH_USABLE_HEAD:
        return passed("model.tier", observed)
    fix = "It runs plain, without a gain; choose a checkpoint that kept its MTP head for one."
    return warned("model.tier", observed, fix)


def check_fit(size: int, memory: Memory) -> Check:
    """Whether weights of `size` bytes fit into memory, as they are stored."""
    gib = 2**30
    observed = (
        f"{size / gib:.2f} GiB of weights, "
        f"{memory.available / gib:.1f} of {memory.total / gib:.1f} GiB of {memory.name} available"
    )
    if size >= memory.total:
        fix = "Choose a smaller or more strongly quantised model."
        return failed("model.memory", observed, fix)
    if size >= memory.available:
        fix = "Close programs that hold much memory, or choose a smaller model."
        return warned("model.memory", observed, fix)
    return passed("model.memory", observed)
