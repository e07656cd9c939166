"""What a plan tells the user: the steps of a build, and what it will do that may surprise."""

from typing import TYPE_CHECKING, NamedTuple

from mtplx.contracts.inspection_checks import counted
from mtplx.contracts.inspection_report import Inspection
from mtplx.forge.parameters import Parts
from mtplx.forge.recipe import Quantization, Recipe
from mtplx.forge.sizes import GIB, Sizes, unfitting

if TYPE_CHECKING:
    from mtplx.forge.source import Source


class Step(NamedTuple):
    """One phase of a build."""

    name: str
    description: str


def plan_steps(
    source: "Source", inspection: Inspection, parts: Parts, recipe: Recipe, sizes: Sizes
) -> tuple[Step, ...]:
    """The phases of a build in their order."""
    steps = [
        Step("convert", _convert(parts, recipe)),
        Step("head", _head(inspection, parts, recipe)),
        Step("calibrate", "Measure on real text how the head is wired, and refuse ties."),
        Step("verify", "Prove the output exact with MTP on and off, and measure the speed."),
        Step(
            "brand", "Write the contract with hashes and evidence, and give the artifact its name."
        ),
    ]
    if source.repo is not None:
        count, size = len(source.files), sizes.download_bytes / GIB
        steps.insert(
            0,
            Step("fetch", f"Download {count} files, {size:.2f} GiB, and check their sha256."),
        )
    return tuple(steps)


def plan_warnings(inspection: Inspection, parts: Parts, recipe: Recipe) -> tuple[str, ...]:
    """The warnings of the inspection, and what the recipe does not do to this source."""
    warnings = list(inspection.warnings)
    head = inspection.head
    if inspection.vision is not None:
        warnings.append("The vision tower is left out: the artifact reads and writes text only.")
    if head.found > 1:
        warnings.append(f"Of {head.found} MTP layers the first is used, at every depth.")
    if head.state == "undeclared+present":
        warnings.append("config.json announces no head; it was found by its tensors.")
    if head.found and inspection.norm_encoding == "undecided-needs-values":
        warnings.append(
            "The files do not tell whether the head's norms hold gains or gains minus one; "
            "calibration decides."
        )
    if recipe.degrades_head:
        warnings.append("The head is quantised like the body: expect few accepted drafts.")
    return (*warnings, *_recipe_warnings(parts, recipe))


def _recipe_warnings(parts: Parts, recipe: Recipe) -> list[str]:
    warnings: list[str] = []
    if parts.is_mlx:
        warnings.append(
            "The trunk is quantised by MLX already and is kept as it is; the recipe's body is not "
            "applied."
        )
    elif parts.trunk:
        if odd := unfitting(parts, recipe):
            what = "modules stay unquantised, their rows do not divide into the recipe's groups"
            warnings.append(counted(odd, what))
        idle = recipe.unmatched([p.module for p in parts.matrices])
        if idle:
            warnings.append(counted(idle, "module_overrides match no module of this model"))
    if any(parameter.is_mlx for parameter in parts.head):
        warnings.append("The head is quantised by MLX already and is kept as it is.")
    return warnings


def _convert(parts: Parts, recipe: Recipe) -> str:
    if parts.is_mlx:
        return "Copy the trunk, which MLX has quantised already."
    packed = any(parameter.is_packed for parameter in parts.trunk)
    unpack = f"Unpack the trunk to {recipe.body_dtype}" if packed else ""
    if recipe.body is None:
        return f"{unpack}, shard by shard." if unpack else "Copy the trunk, shard by shard."
    how = f"{_shown(recipe.body)}, shard by shard"
    return f"{unpack} and quantise it to {how}." if unpack else f"Quantise the trunk to {how}."


def _head(inspection: Inspection, parts: Parts, recipe: Recipe) -> str:
    if any(parameter.is_mlx for parameter in parts.head):
        how = "as it is quantised"
    else:
        how = _shown(recipe.head) if recipe.head else "in bfloat16"
    layers = "layer" if inspection.head.found == 1 else "layers"
    return f"Write the {inspection.head.found} MTP {layers} to mtp/head.safetensors, {how}."


def _shown(how: Quantization) -> str:
    return f"{how.bits} bits in groups of {how.group_size} ({how.mode})"
