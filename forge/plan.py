"""What a build would do with a source, or why there is nothing to do: told from metadata alone.

`mtplx forge probe` shows a plan and a build carries it out, so what a probe accepts no build
refuses for a reason that the metadata show.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtplx.contracts import quantization as quant
from mtplx.contracts.arch_ids import arch_id
from mtplx.contracts.errors import (
    HeadMissingError,
    InvalidRequestError,
    MTPLXError,
    TokenizerMissingError,
    UnsupportedModelError,
    UsageError,
)
from mtplx.contracts.inspection import inspect_folder
from mtplx.contracts.inspection_report import Inspection, Tier
from mtplx.contracts.source_format import SourceFormat, source_format
from mtplx.forge.parameters import Parts, read_parts
from mtplx.forge.plan_notes import Step, plan_steps, plan_warnings
from mtplx.forge.recipe import Recipe
from mtplx.forge.sizes import GIB, Sizes, estimate, unfitting
from mtplx.forge.structure import check_structure

if TYPE_CHECKING:
    from mtplx.forge.source import Source


class Verdict(StrEnum):
    """Whether a source can be forged.

    forgeable: a build will do what the plan says.
    already_mtplx: an artifact of ours or of the public tool; verify it instead.
    no_mtp_heads: sound, and without the tensors of a head.
    unsupported_source: damaged, unknown, or nothing mtplx can run with its head.
    """

    FORGEABLE = "forgeable"
    ALREADY_MTPLX = "already_mtplx"
    NO_MTP_HEADS = "no_mtp_heads"
    UNSUPPORTED_SOURCE = "unsupported_source"


@dataclass(frozen=True)
class Plan:
    """What will be made of a source. `error` is what a build would end with, None if nothing."""

    source: str
    repo: str | None
    commit: str | None
    format: SourceFormat
    verdict: Verdict
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    error: MTPLXError | None
    inspection: Inspection
    recipe: Recipe
    sizes: Sizes
    steps: tuple[Step, ...] = ()

    @property
    def is_forgeable(self) -> bool:
        """Whether a build can start."""
        return self.verdict is Verdict.FORGEABLE

    @property
    def family(self) -> str | None:
        """Name of the family."""
        return self.inspection.family.name if self.inspection.family else None

    @property
    def architecture_id(self) -> str | None:
        """The public name of the architecture."""
        return arch_id(self.inspection.family) if self.inspection.family else None

    @property
    def artifact_bytes(self) -> int:
        """Bytes of the finished artifact."""
        return self.sizes.artifact_bytes

    @property
    def peak_memory_bytes(self) -> int:
        """The most memory that a phase of the build needs."""
        return self.sizes.peak_memory_bytes

    @property
    def disk_bytes(self) -> int:
        """Disk that the build needs: download, artifact and the shard being written."""
        return self.sizes.disk_bytes

    @property
    def exit_code(self) -> int:
        """0 for what can be forged or is forged already, else the error's."""
        if self.verdict in (Verdict.FORGEABLE, Verdict.ALREADY_MTPLX):
            return 0
        return self.error.exit_code if self.error else UnsupportedModelError.exit_code

    def require_forgeable(self) -> None:
        """Raise what a build ends with here: `error`, for an artifact a UsageError."""
        if self.error is not None:
            raise self.error

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable account; keys are stable, unknown values are null.

        With the public tool's meaning: verdict, forgeable, supported, already_mtplx, source,
        hf_repo, source_sha, source_format, has_mtp_weights, estimated_size_bytes,
        estimated_peak_gib, message, diagnostic, architecture_id, architecture_recognized,
        recommended_backend, runtime_compatibility, support_level, backend_status.
        Ours: exit_code; reasons, warnings (texts); error {code, title, message, hint, ...};
        family; head, norm_encoding, quantization, vision (as an inspection has them);
        recipe (every key) and recipe_digest; sizes (bytes); steps [{name, description}].
        """
        shown = self.inspection.to_json()
        return {
            **self._public_json(shown),
            "exit_code": self.exit_code,
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            "error": self.error.to_json() if self.error else None,
            "family": shown["family"],
            **{key: shown[key] for key in ("head", "norm_encoding", "vision")},
            "quantization": quant.summary(self.inspection.quantization),
            "recipe": self.recipe.model_dump(mode="json"),
            "recipe_digest": self.recipe.digest(),
            "sizes": self.sizes.to_json(),
            "steps": [{"name": step.name, "description": step.description} for step in self.steps],
        }

    def _public_json(self, shown: dict[str, Any]) -> dict[str, Any]:
        """The keys of the public tool."""
        inspection, is_ours = self.inspection, self.verdict is Verdict.ALREADY_MTPLX
        backend = "native-mtp" if inspection.can_use_head else None
        return {
            "verdict": self.verdict.value,
            "forgeable": self.is_forgeable,
            "supported": self.is_forgeable or is_ours,
            "already_mtplx": is_ours,
            "source": self.source,
            "hf_repo": self.repo,
            "source_sha": self.commit,
            "source_format": self.format.value,
            "has_mtp_weights": inspection.head.found > 0,
            "estimated_size_bytes": self.sizes.artifact_bytes or None,
            "estimated_peak_gib": round(self.peak_memory_bytes / GIB, 3) or None,
            "message": " ".join(self.reasons),
            "diagnostic": self.error.hint or None if self.error else None,
            "architecture_id": self.architecture_id,
            "architecture_recognized": inspection.family is not None,
            "recommended_backend": backend,
            "runtime_compatibility": shown["tier"],
            "support_level": shown["tier"],
            "backend_status": "available" if backend else "absent",
        }


def check_head_policy(recipe: Recipe, *, allow_degraded_mtp: bool) -> None:
    """Raise UsageError for a recipe that degrades the head when that is not allowed."""
    if recipe.degrades_head and not allow_degraded_mtp:
        raise UsageError(
            f"Recipe {recipe.name} has mtp_policy requantize, which gives the MTP head the "
            f"{recipe.body_bits} bits of the body; most of its drafts will be wrong.",
            hint="Use keep_bf16 or q8, or allow it with --allow-degraded-mtp.",
        )


def unreadable(label: str, recipe: Recipe, error: MTPLXError) -> Plan:
    """The plan for a source that could not even be looked at, which ends with `error`."""
    return Plan(
        source=label,
        repo=None,
        commit=None,
        format=SourceFormat.UNKNOWN,
        verdict=Verdict.UNSUPPORTED_SOURCE,
        reasons=(str(error),),
        warnings=(),
        error=error,
        inspection=Inspection(Path(label), Tier.INCOMPATIBLE, error=error),
        recipe=recipe,
        sizes=Sizes(),
    )


def make_plan(
    source: "Source", folder: Path, recipe: Recipe, *, allow_degraded_mtp: bool = False
) -> Plan:
    """Plan a build of `source`, whose metadata lie in `folder`. A bad source is a plan, too.

    Raises UsageError for a recipe that degrades the head when that is not allowed.
    """
    check_head_policy(recipe, allow_degraded_mtp=allow_degraded_mtp)
    inspection = inspect_folder(folder, check_content=False)
    download = sum(file.size for file in source.files) if source.repo else 0
    parts, verdict, error = _judge(inspection, recipe)
    warnings = plan_warnings(inspection, parts, recipe)
    if source.repo is not None:
        # A skeleton is gone by the time the plan is read.
        warnings = tuple(text.replace(str(folder), source.repo) for text in warnings)
        if error is not None:
            error.message = error.message.replace(str(folder), source.repo)
            error.hint = error.hint.replace(str(folder), source.repo)
    sizes = estimate(inspection, parts, recipe, download_bytes=download)
    return Plan(
        source=source.label,
        repo=source.repo,
        commit=source.commit,
        format=source_format(inspection),
        verdict=verdict,
        reasons=_reasons(inspection, error),
        warnings=warnings,
        error=error,
        inspection=inspection,
        recipe=recipe,
        sizes=sizes,
        steps=plan_steps(source, inspection, parts, recipe, sizes)
        if verdict is Verdict.FORGEABLE
        else (),
    )


def _judge(inspection: Inspection, recipe: Recipe) -> tuple[Parts, Verdict, MTPLXError | None]:
    """The parameters as far as they can be read, the verdict, and what a build would raise."""
    parts = Parts()
    try:
        inspection.raise_if_unrunnable()
        if not inspection.head.found:
            return parts, Verdict.NO_MTP_HEADS, _no_head(inspection)
        if not inspection.head.is_usable:
            raise _no_backend(inspection)
        parts = read_parts(inspection)
        if inspection.contract is not None:
            return parts, Verdict.ALREADY_MTPLX, _forged_already(inspection)
        check_structure(inspection, parts)
        _check_tokenizer(inspection)
        _check_recipe(parts, recipe)
    except MTPLXError as error:
        return parts, Verdict.UNSUPPORTED_SOURCE, error
    return parts, Verdict.FORGEABLE, None


def _check_tokenizer(inspection: Inspection) -> None:
    if not inspection.has_tokenizer:
        raise TokenizerMissingError(
            "The source has no tokenizer that loads without code of the repository; calibration and "
            "verification run on text.",
            hint="Put tokenizer.json of the model's release beside config.json.",
        )


def _check_recipe(parts: Parts, recipe: Recipe) -> None:
    """A recipe that quantises must find something to quantise."""
    wanted = [p for p in parts.matrices if recipe.quantization_for(p.module) is not None]
    if not parts.is_mlx and wanted and len(unfitting(parts, recipe)) == len(wanted):
        widths = sorted({p.shape[-1] for p in wanted})
        raise InvalidRequestError(
            f"Recipe {recipe.name} has groups of {recipe.body_group_size} weights, and no matrix of "
            f"the model has rows that divide into them (widths {', '.join(map(str, widths[:8]))}).",
            key="body_group_size",
            hint="Use a smaller body_group_size, or the recipe lossless.",
        )


def _no_head(inspection: Inspection) -> HeadMissingError:
    declared = inspection.head.declared
    announced = "config.json announces none" if declared is None else f"declared {declared}"
    return HeadMissingError(
        f"The weights hold no MTP head ({announced}, found 0).",
        hint="Take a release that keeps the head; many quantised copies leave it out.",
    )


def _no_backend(inspection: Inspection) -> UnsupportedModelError:
    title = inspection.family.title if inspection.family else "The model"
    return UnsupportedModelError(
        f"{title} has an MTP head of {inspection.head.found} layer(s), and mtplx has no backend for "
        "it yet.",
        hint="It runs plain: `mtplx run --model PATH`.",
    )


def _forged_already(inspection: Inspection) -> UsageError:
    contract = inspection.contract
    version = contract.mtplx_version if contract else None
    return UsageError(
        f"The source is an artifact already, forged by mtplx {version or '?'}.",
        hint="`mtplx forge verify PATH` measures it again; to forge anew, start from its source.",
    )


def _reasons(inspection: Inspection, error: MTPLXError | None) -> tuple[str, ...]:
    if error is not None:
        return (str(error),)
    head, title = inspection.head, inspection.family.title if inspection.family else ""
    layers = "1 MTP layer" if head.found == 1 else f"{head.found} MTP layers"
    return (f"{title} with a head of {layers} at '{head.prefix}' ({head.state}).",)
