"""`mtplx forge probe`: what a build would do with a source, from its metadata only."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.commands.forge.flags import (
    AllowDegradedOption,
    JsonOption,
    RecipeOption,
    RevisionOption,
    SourceArgument,
)
from mtplx.render import Row, print_error
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.forge.plan import Plan


def probe(
    source: SourceArgument,
    recipe: RecipeOption = "optimized-quality",
    revision: RevisionOption = None,
    allow_degraded_mtp: AllowDegradedOption = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show verdict and reasons only.")] = False,
) -> None:
    """Say whether a checkpoint can be forged, what a build will do, and what it will need.

    Reads headers and small files; no weights are downloaded.

    Example: mtplx forge probe Qwen/Qwen3.5-4B --recipe optimized-speed
    """
    from mtplx.contracts.errors import MTPLXError
    from mtplx.forge.plan import check_head_policy, make_plan, unreadable
    from mtplx.forge.recipe import load_recipe
    from mtplx.forge.source import open_source

    wanted = load_recipe(recipe)
    check_head_policy(wanted, allow_degraded_mtp=allow_degraded_mtp)
    try:
        opened = open_source(source, revision=revision)
        with opened.skeleton() as folder:
            plan = make_plan(opened, folder, wanted, allow_degraded_mtp=allow_degraded_mtp)
    except MTPLXError as error:
        plan = unreadable(source, wanted, error)
    show_plan(plan, Screen(quiet=quiet), as_json=as_json)
    raise typer.Exit(plan.exit_code)


def show_plan(plan: "Plan", screen: Screen, *, as_json: bool) -> None:
    """Print a plan as what was asked for; a quiet screen gets verdict and reasons only."""
    if as_json:
        screen.write_json(plan.to_json())
        return
    rows = verdict_rows(plan) if screen.quiet else plan_rows(plan)
    screen.table(plan.source, rows, sys.stdout)
    if plan.error is not None and plan.exit_code:
        print_error(sys.stderr, plan.error)


def verdict_rows(plan: "Plan") -> list[Row]:
    """The verdict of a plan and its reasons."""
    return [
        Row("verdict", str(plan.verdict)),
        *(Row("reason", reason) for reason in plan.reasons),
    ]


def plan_rows(plan: "Plan") -> list[Row]:
    """The facts of a plan for reading; what is not known is left out."""
    inspection, sizes = plan.inspection, plan.sizes
    rows = verdict_rows(plan)
    if plan.repo is not None:
        rows.append(Row("commit", plan.commit or "-"))
    rows += [
        Row("format", str(plan.format)),
        Row("family", inspection.family.title if inspection.family else "unknown"),
        Row("MTP head", _head(plan)),
        Row("source", gib(sizes.source_bytes)),
    ]
    if plan.is_forgeable:
        rows += [
            Row("recipe", f"{plan.recipe.name}: {plan.recipe.description}".removesuffix(": ")),
            Row("artifact", f"{gib(sizes.artifact_bytes)}, head {gib(sizes.head_bytes)}"),
            *([Row("download", gib(sizes.download_bytes))] if plan.repo is not None else []),
            Row("disk needed", gib(sizes.disk_bytes)),
            Row(
                "peak memory",
                f"{gib(sizes.convert_peak_bytes)} to convert, {gib(sizes.run_peak_bytes)} to "
                "calibrate and verify",
            ),
            *(Row(f"step {n}", f"{s.name}: {s.description}") for n, s in enumerate(plan.steps, 1)),
        ]
    return rows + [Row("warning", warning) for warning in plan.warnings]


def gib(size: int) -> str:
    """A number of bytes in GiB, small ones in MiB."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.1f} MiB"


def _head(plan: "Plan") -> str:
    head = plan.inspection.head
    if not head.found:
        return head.state
    return f"{head.state}, {head.found} layer(s), {gib(head.nbytes)} {'/'.join(head.dtypes)}"
