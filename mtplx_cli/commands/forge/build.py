"""`mtplx forge build`: make an artifact."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtplx.commands.forge.evidence import contract_rows
from mtplx.commands.forge.flags import (
    AllowDegradedOption,
    CalibrationTextOption,
    JsonOption,
    QuietOption,
    RecipeOption,
    RevisionOption,
    SourceArgument,
    YesOption,
)
from mtplx.commands.forge.probe import show_plan
from mtplx.contracts.errors import INTERRUPTED_EXIT_CODE
from mtplx.render import Row
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.forge.build import BuildResult
    from mtplx.forge.job import BuildJob


def build(
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="Folder for the run folder and the artifact.")],
    recipe: RecipeOption = "optimized-quality",
    name: Annotated[
        str | None, typer.Option(help="Name of the artifact: SOURCE-mtplx-RECIPE if not given.")
    ] = None,
    revision: RevisionOption = None,
    run_id: Annotated[
        str | None, typer.Option(help="Name of the run folder: run-NAME if not given.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and write nothing.")
    ] = False,
    verification: Annotated[
        Literal["full", "exactness", "none"],
        typer.Option("--verify", help="Measure exactness and speed, exactness alone, or nothing."),
    ] = "full",
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Find the head's wiring by measurement, or take the family's default.",
        ),
    ] = True,
    calibration_text: CalibrationTextOption = None,
    allow_degraded_mtp: AllowDegradedOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Convert a checkpoint, calibrate its head, prove it exact, measure it, and write the contract.

    Everything happens in the run folder OUT/RUN_ID; the artifact appears as OUT/NAME when it is
    finished. A build that was stopped, however hard, goes on with --resume.

    Example: mtplx forge build Qwen/Qwen3.5-4B --out models --recipe optimized-speed
    """
    from mtplx.forge.build import prepare_build, run_build
    from mtplx.forge.recipe import load_recipe

    screen = Screen(quiet=quiet or as_json)
    job = prepare_build(
        source,
        load_recipe(recipe),
        out.expanduser(),
        revision=revision,
        name=name,
        run_id=run_id,
        resume=resume,
        calibrate=calibrate,
        verify=verification,
        allow_degraded_mtp=allow_degraded_mtp,
        calibration_text=calibration_text,
    )
    if dry_run:
        show_plan(job.plan, screen, as_json=as_json)
        return
    if not screen.quiet:
        show_plan(job.plan, screen, as_json=False)
    if not (yes or as_json):
        _confirm(job)
    try:
        with screen.progress() as progress:
            result = run_build(
                job, lambda phase, label, done: progress.update(f"{phase}: {label}", done)
            )
    except KeyboardInterrupt as stopped:
        screen.note(f"{stopped or 'stopped'}; the same command with --resume goes on")
        raise
    if as_json:
        screen.write_json(result.outcome)
    else:
        screen.table(result.path.name, _result_rows(result), sys.stdout)
    raise typer.Exit(result.exit_code)


def _confirm(job: "BuildJob") -> None:
    """Ask before anything is fetched or written, where there is somebody to ask."""
    if not sys.stdin.isatty():
        return
    if not typer.confirm(f"Build {job.target}?", default=True, err=True):
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def _result_rows(result: "BuildResult") -> list[Row]:
    contract, outcome = result.contract, result.outcome
    rows = [Row("path", str(result.path)), Row("verdict", outcome["verdict"])]
    rows += [Row("reason", reason) for reason in outcome["failure_reasons"]]
    rows += contract_rows(contract)
    return [*rows, Row("next", f'mtplx run --model {result.path} "Hello"')]
