"""`mtplx forge build`: make an artifact."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtplx.contracts.errors import INTERRUPTED_EXIT_CODE, UsageError
from mtplx.render import Row
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.forge.build import BuildResult
    from mtplx.forge.job import BuildJob


def build(
    source: Annotated[str, typer.Argument(help="A model folder, or ORG/NAME on the hub.")],
    out: Annotated[Path, typer.Option(help="Folder for the run folder and the artifact.")],
    recipe: Annotated[
        str, typer.Option(help="A recipe's name, a YAML or JSON file, or JSON text.")
    ] = "optimized-quality",
    name: Annotated[
        str | None, typer.Option(help="Name of the artifact: SOURCE-mtplx-RECIPE if not given.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a hub source.")
    ] = None,
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
    calibration_text: Annotated[
        Path | None, typer.Option(help="Calibrate on this text instead of the one that ships.")
    ] = None,
    allow_degraded_mtp: Annotated[
        bool,
        typer.Option(
            "--allow-degraded-mtp", help="Allow recipes that quantise the head like the body."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Start without asking.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no notes and no progress.")] = False,
) -> None:
    """Convert a checkpoint, calibrate its head, prove it exact, measure it, and write the contract.

    Everything happens in the run folder OUT/RUN_ID; the artifact appears as OUT/NAME when it is
    finished. A build that was stopped, however hard, goes on with --resume.

    Example: mtplx forge build Qwen/Qwen3.5-4B --out models --recipe optimized-speed
    """
    from mtplx.forge.build import prepare_build, run_build
    from mtplx.forge.recipe import load_recipe
    from mtplx.forge.source import open_source

    screen = Screen(quiet=quiet or as_json)
    job = prepare_build(
        open_source(source, revision=revision),
        load_recipe(recipe),
        out.expanduser(),
        name=name,
        run_id=run_id,
        resume=resume,
        verify=verification,
        allow_degraded_mtp=allow_degraded_mtp,
        calibration_text=calibration_text,
    )
    _show_plan(job, screen, as_json=as_json and dry_run, asked_for=dry_run)
    if dry_run:
        return
    if not (yes or as_json):
        _confirm(job)
    try:
        with screen.progress() as progress:
            result = run_build(
                job, lambda phase, label, done: progress.update(f"{phase}: {label}", done)
            )
    except KeyboardInterrupt as stopped:
        screen.note(f"{stopped or 'stopped'}; go on with the same command and --resume")
        raise
    _show_result(result, screen, as_json=as_json)
    raise typer.Exit(result.exit_code)
