"""The head of an artifact: `mtp/head.safetensors`, under published names, with gains as they multiply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import mlx.core as mx

from mtplx.contracts.errors import InternalError, UnsupportedModelError, UsageError
from mtplx.contracts.families import find_family, find_head
from mtplx.contracts.head_names import HeadTensors
from mtplx.contracts.identity import FileRecord, record_file
from mtplx.contracts.inspection import Inspection
from mtplx.contracts.json_object import read_object
from mtplx.forge.convert.body import body_dtype
from mtplx.forge.convert.head_gains import absolute_gains
from mtplx.forge.convert.head_matrices import (
    cast_matrices,
    pack_matrices,
    reshaped,
    stored_packing,
)
from mtplx.forge.convert.head_names import check_names, vocabulary_copies
from mtplx.forge.convert.published import head_tensors, read, unpacked
from mtplx.forge.convert.writer import write_tensors
from mtplx.forge.recipe import Recipe
from mtplx.runtime.loading.arrays import Weights

HEAD_FILE: Final = "mtp/head.safetensors"
_METADATA = {"format": "mlx"}


@dataclass(frozen=True, slots=True)
class HeadRecord:
    """The written head.

    `quantization` has bits, group size and mode, and modules that differ by their path; None for a
    head that is not packed. `policy` is the recipe's. `mtp_layers` counts physical layers. `dropped`
    says of each published tensor that was left out why. `notes` are for the user.
    """

    file: FileRecord
    quantization: dict[str, Any] | None
    policy: str
    mtp_layers: int
    dropped: dict[str, str]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Every field by its name, and `norm_encoding`, which is that of every head written here."""
        return {**asdict(self), "notes": list(self.notes), "norm_encoding": "absolute"}


def convert_head(
    folder: Path,
    inspection: Inspection,
    recipe: Recipe,
    out: Path,
    *,
    allow_degraded_mtp: bool,
    is_calibrated_next: bool,
) -> HeadRecord:
    """Write the head of the model in `folder` to `mtp/head.safetensors` in `out`, all its layers.

    Experts are stacked and `kv_b_proj` is split as mlx-lm computes with them, copies of the trunk's
    vocabulary are left out, and gains are stored as they multiply, in float32. Matrices are
    bfloat16, as published where the recipe keeps the body as published, or packed by the recipe's
    policy; those that came packed by MLX stay as they are. A norm convention that is in doubt is
    left to calibration where `is_calibrated_next`.

    Raises:
        UsageError: the policy is known to ruin the head, and that was not allowed.
        HeadWeightsError: there are tensors that the family's layout does not know, or the norm
            convention is in doubt and no calibration follows.
        UnsupportedModelError: the head has no backend.
        ResourceError: the disk is full.
    """
    if recipe.degrades_head and not allow_degraded_mtp:
        raise UsageError(
            f"Recipe {recipe.name} gives the MTP head the bits of the body (mtp_policy requantize), "
            "which is known to ruin its drafts.",
            hint="Use keep_bf16 or q8, or add --allow-degraded-mtp.",
        )
    family = inspection.family
    if family is None or not inspection.can_use_head:
        raise UnsupportedModelError(
            f"{folder}: the MTP head has no backend and is not converted.",
            hint="`mtplx inspect` says which heads run.",
        )
    inspection = replace(inspection, path=folder)
    found = head_tensors(inspection)
    weights = unpacked(inspection, read(inspection, found.names), body_dtype(recipe))
    check_names(family, found)
    dropped, notes = vocabulary_copies(inspection, family, found)
    for name in dropped:
        del weights[name]
    weights = reshaped(inspection.config, weights)
    names = _relative(inspection.config, weights)
    packing = stored_packing(inspection, names, weights)

    weights, more = absolute_gains(inspection, weights, may_doubt=is_calibrated_next)
    notes += more
    if not recipe.is_lossless:
        weights = cast_matrices(weights)
    if recipe.head is not None and packing is not None:
        notes.append(
            f"The head is stored quantised already and stays so; mtp_policy {recipe.mtp_policy} is not applied."
        )
    elif recipe.head is not None:
        weights, packing = pack_matrices(family, names, weights, recipe.head)
    record = write_tensors(out / HEAD_FILE, weights, metadata=_METADATA)
    return HeadRecord(
        file=record,
        quantization=packing,
        policy=recipe.mtp_policy,
        mtp_layers=found.num_layers,
        dropped=dropped,
        notes=tuple(notes),
    )


def apply_norm_shift(path: Path, shift: Mapping[str, int]) -> FileRecord:
    """Add -1 or +1 to the gains in `shift` of the head at `path`, and return the new file's record.

    `path` is `mtp/head.safetensors` of an artifact, whose config.json tells the layout. Keys are
    names relative to the head, as published: `pre_fc_norm_embedding.weight`, `0.enorm.weight`.

    Raises:
        CorruptModelError: the artifact's config.json can't be read.
    """
    if not shift:
        return record_file(path)
    weights: Any = mx.load(str(path))
    config = read_object(path.parent.parent / "config.json")
    names = {relative: name for name, relative in _relative(config, weights).names.items()}
    unknown = sorted(set(shift) - set(names))
    if unknown:
        raise InternalError(f"{path} has no gains {', '.join(unknown)} to shift")
    for relative, by in shift.items():
        gain = weights[names[relative]]
        weights[names[relative]] = gain.astype(mx.float32) + float(by)
    return write_tensors(path, weights, metadata=_METADATA)


def _relative(config: Mapping[str, Any], weights: Weights) -> HeadTensors:
    """Names relative to the head of tensors under published names."""
    family = find_family(config)
    found = find_head(family, config, weights) if family is not None else None
    if found is None or len(found.names) != len(weights):
        raise InternalError(
            f"{len(weights)} tensors were taken for a head, and {len(found.names) if found else 0} "
            "of them are found again"
        )
    return found
