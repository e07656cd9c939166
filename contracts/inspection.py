"""Looking at a model folder: what it is, whether it runs, with or without MTP, and why.

Reads configs and headers, no weights unless their hashes shall be verified. A bad folder is a
result, not an exception: `Inspection.error` holds the reason.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtplx.contracts import families, inspection_checks
from mtplx.contracts.content_check import ContentCheck, Progress, compare_content
from mtplx.contracts.contract_checks import check_contract
from mtplx.contracts.errors import (
    CorruptModelError,
    ModelNotFoundError,
    MTPLXError,
    NotAModelError,
    UnsupportedModelError,
)
from mtplx.contracts.family import Family
from mtplx.contracts.head_names import HeadTensors
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection_report import HeadReport, Inspection, Tier, head_report
from mtplx.contracts.norms import norm_encoding
from mtplx.contracts.quantization import check_tensors, read_quantization
from mtplx.contracts.tensor_header import shortened
from mtplx.contracts.tensors import TensorIndex, read_tensor_index
from mtplx.contracts.tokenizer_files import eos_token_ids, find_chat_template, has_tokenizer

if TYPE_CHECKING:
    from mtplx.contracts.runtime_contract import RuntimeContract

__all__ = ["HeadReport", "Inspection", "Tier", "inspect_folder"]


def inspect_folder(
    path: str | Path,
    *,
    check_content: bool = True,
    verify_hashes: bool = False,
    on_progress: Progress | None = None,
) -> Inspection:
    """Inspect the model folder `path`. Never raises for a bad folder.

    Files are compared with those that its contract records: sizes, headers of the weights and
    small files whole; with `verify_hashes` every byte. `on_progress` gets bytes read and to be
    read. With `check_content` false they are not compared, and the model counts as unverified.
    """
    findings = _Findings(Path(path))
    content = _ContentRequest(check_content or verify_hashes, verify_hashes, on_progress)
    try:
        findings.folder = _expanded(findings.folder)
        return findings.close(_inspect(findings, content))
    except MTPLXError as error:
        return findings.fail(error)
    except OSError as cause:
        return findings.fail(
            NotAModelError(
                f"{cause.filename or path} cannot be read: {cause.strerror or cause}.",
                hint="Check the permissions of the folder and its files.",
            )
        )


@dataclass(frozen=True, slots=True)
class _ContentRequest:
    """Whether and how the files are to be compared with the contract."""

    wanted: bool
    full: bool
    on_progress: Progress | None


@dataclass(slots=True)
class _Findings:
    """What is known so far. `known` holds keyword arguments of the final `Inspection`."""

    folder: Path
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)

    def close(self, tier: Tier, error: MTPLXError | None = None) -> Inspection:
        return Inspection(
            path=self.folder,
            tier=tier,
            reasons=tuple(self.reasons),
            warnings=tuple(self.warnings),
            error=error,
            **self.known,
        )

    def fail(self, error: MTPLXError) -> Inspection:
        self.reasons = [str(error)]
        corrupt = isinstance(error, CorruptModelError)
        return self.close(Tier.CORRUPT if corrupt else Tier.INCOMPATIBLE, error)


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as cause:
        raise ModelNotFoundError(
            f"{path} does not exist: {cause}", hint="Give the path of a model folder."
        ) from cause


def _inspect(findings: _Findings, content: _ContentRequest) -> Tier:
    """Every step in order; the first error ends the inspection."""
    folder, known, warnings = findings.folder, findings.known, findings.warnings
    known["config"] = config = inspection_checks.read_config(folder)
    known["family"] = family = inspection_checks.recognise(config)
    warnings += inspection_checks.config_warnings(config, family)
    known["num_layers"] = num_layers = families.num_trunk_layers(config)
    known["context_length"] = inspection_checks.context_length(config)
    known["quantization"] = quantization = read_quantization(folder, config)
    known["index"] = index = read_tensor_index(folder)
    known["size_bytes"] = sum((folder / name).stat().st_size for name in index.files)
    warnings += index.warnings
    head = _find_head(findings, family, config, index)
    inspection_checks.check_trunk(family, num_layers, index, head)
    check_tensors(index, quantization, head.names if head else {})
    _read_text_side(findings, config)
    _read_vision(findings, config, index)
    contract = _read_contract(findings)
    if contract is not None:
        check_contract(contract, family, head, index)
    check = _check_content(findings, contract, index, content)
    recorded = contract.head.norm_encoding if contract and contract.head else None
    known["norm_encoding"] = norm_encoding(family, index, head, recorded)
    return _tier(findings, family, contract, check)


def _find_head(
    findings: _Findings, family: Family, config: dict[str, Any], index: TensorIndex
) -> HeadTensors | None:
    declared = families.declared_heads(config, family)
    head = families.find_head(family, config, index.tensors)
    findings.known["head"] = head_report(declared, head, index, has_backend=family.runnable)
    findings.known["head_tensors"] = head
    num_layers = findings.known["num_layers"]
    findings.warnings += inspection_checks.head_warnings(declared, head, index, num_layers)
    inspection_checks.check_head(family, head)
    return head


def _read_text_side(findings: _Findings, config: dict[str, Any]) -> None:
    folder, known = findings.folder, findings.known
    vocab_size = inspection_checks.positive(families.text_config(config).get("vocab_size"))
    known["eos_token_ids"], warnings = eos_token_ids(folder, config, vocab_size)
    known["has_tokenizer"] = has_tokenizer(folder)
    template = find_chat_template(folder)
    known["chat_template_source"] = template.source if template else None
    findings.warnings += warnings
    if not known["has_tokenizer"]:
        findings.warnings.append("No tokenizer that loads without code of the repository.")
    if template is None:
        findings.warnings.append("No chat template; only raw prompts can be run.")
    if not known["eos_token_ids"]:
        findings.warnings.append("No end token is known; text ends at the token limit only.")


def _read_vision(findings: _Findings, config: dict[str, Any], index: TensorIndex) -> None:
    findings.known["vision"] = tower = inspection_checks.find_vision(findings.folder, index.tensors)
    if tower:
        findings.warnings.append(
            f"The model has a vision or audio tower ({tower['tensors']} tensors); "
            "mtplx runs text only."
        )
    elif config.get("vision_config"):
        findings.warnings.append(
            "config.json describes a vision tower and the weights hold none: text only."
        )


def _read_contract(findings: _Findings) -> "RuntimeContract | None":
    if not (findings.folder / CONTRACT_NAME).exists():
        return None
    # pydantic costs more to import than a whole inspection takes.
    from mtplx.contracts.runtime_contract import read_contract

    findings.known["contract"] = contract = read_contract(findings.folder)
    if contract is None:
        return None
    refused = contract.refused_keys
    other = [key for key in contract.unknown_keys if key not in refused]
    for keys, what in (
        (refused, "contract keys would set the environment and are ignored"),
        (other, "contract keys are not read"),
    ):
        if keys:
            findings.warnings.append(inspection_checks.counted(keys, what))
    if contract.labels:
        labels = ", ".join(shortened(label) for label in contract.labels)
        findings.warnings.append(f"The contract labels the model: {labels}.")
    return contract


def _check_content(
    findings: _Findings,
    contract: "RuntimeContract | None",
    index: TensorIndex,
    request: _ContentRequest,
) -> ContentCheck | None:
    """How the files differ from the contract; None when there is nothing to compare, or no wish.

    Raises CorruptModelError when weights differ: nothing the contract says is about these.
    """
    if contract is None or contract.content is None:
        if request.full:
            findings.warnings.append(f"No hashes to verify: {_without_hashes(contract)}.")
        return None
    if not request.wanted:
        return None
    check = compare_content(
        findings.folder,
        index.files,
        contract.content.records(),
        full=request.full,
        on_progress=request.on_progress,
    )
    if check.weights:
        differing = inspection_checks.counted(check.weights, "weight files differ")
        raise CorruptModelError(
            f"The weights are not those that {CONTRACT_NAME} was written for: {differing}",
            hint=f"Fetch the model again, or delete {CONTRACT_NAME} to run it unverified.",
        )
    if check.identity not in (None, contract.content.identity):
        raise CorruptModelError(
            f"{CONTRACT_NAME} gives the identity {contract.content.identity}, and the files it "
            f"records have {check.identity}.",
            hint=f"Fetch the model again, or delete {CONTRACT_NAME} to run it unverified.",
        )
    if check.others:
        findings.warnings.append(
            inspection_checks.counted(check.others, "files differ from the contract")
        )
    return check


def _without_hashes(contract: "RuntimeContract | None") -> str:
    if contract is None:
        return f"there is no {CONTRACT_NAME}"
    return f"{CONTRACT_NAME} records none"


def _tier(
    findings: _Findings,
    family: Family,
    contract: "RuntimeContract | None",
    check: ContentCheck | None,
) -> Tier:
    head: HeadReport = findings.known["head"]
    if not family.has_trunk:
        raise _no_backend(family, head)
    if family.ar_only:
        tier, reason = Tier.AR_ONLY, f"{family.title} has no MTP heads; it runs plain."
    elif head.state == "declared+missing":
        tier, reason = (
            Tier.NO_MTP_HEADS,
            f"config.json announces MTP layers (declared {head.declared}) and the weights hold "
            "none (found 0); it runs plain.",
        )
    elif not head.found:
        tier, reason = (
            Tier.NO_MTP_HEADS,
            "The weights hold no MTP head and none is announced; it runs plain.",
        )
    elif not head.is_usable:
        tier, reason = (
            Tier.ARCHITECTURE_COMPATIBLE_UNVERIFIED,
            f"{family.title}: head present, no backend yet; it runs plain.",
        )
    else:
        findings.reasons.append(
            f"{family.title} head with {head.found} MTP layer(s), {head.state}."
        )
        tier, reason = _verification(contract, check)
    findings.reasons.append(reason)
    return tier


def _no_backend(family: Family, head: HeadReport) -> UnsupportedModelError:
    found = "head present" if head.found else "no head found"
    runnable = ", ".join(f.title for f in families.FAMILIES if f.runnable)
    return UnsupportedModelError(
        f"{family.title} is recognised ({found}), no backend yet. {family.notes}".rstrip(),
        hint=f"Families that run with MTP: {runnable}.",
    )


def _verification(
    contract: "RuntimeContract | None", check: ContentCheck | None
) -> tuple[Tier, str]:
    """Verified or not, and why, for a model whose head can be used."""
    unverified = Tier.FAMILY_COMPATIBLE_UNVERIFIED
    if contract is None:
        return unverified, f"Unverified: there is no {CONTRACT_NAME}."
    faults = contract.unproven()
    if check is not None and check.others:
        changed = inspection_checks.counted(check.others, "files differ from the contract")
        faults = (*faults, changed.removesuffix("."))
    if faults:
        return unverified, f"Unverified: {'; '.join(faults)}."
    if check is None:
        return unverified, "Unverified: the content was not compared with the contract."
    how = (
        "every byte of the content matches"
        if check.is_full
        else "the content matches by sizes, weight headers and small files"
    )
    return Tier.VERIFIED, f"Verified: exactness passed, the speed gain is significant, {how}."
