"""`mtplx remove`: take a model off this machine."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.commands.forge.flags import JsonOption
from mtplx.commands.forge.probe import gib
from mtplx.contracts.errors import INTERRUPTED_EXIT_CODE, UsageError
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.removal import Removal


def remove(
    name: Annotated[str, typer.Argument(help="A name as `mtplx models` lists it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing when it is done.")] = False,
) -> None:
    """Remove a model that `mtplx models` lists, and say how much disk space that freed.

    Links are removed, never what they lead to. What other revisions of a repository share stays.

    Example: mtplx remove Qwen/Qwen3.5-4B --dry-run

    Example: mtplx remove Qwen/Qwen3.5-4B --yes
    """
    from mtplx.library import find_models
    from mtplx.removal import plan_removal

    removal = plan_removal(find_models().named(name))
    if not (dry_run or yes):
        _confirm(removal)
    if not dry_run:
        removal.run()
    if dry_run or as_json or not quiet:
        _show(removal, dry_run=dry_run, as_json=as_json)


def _confirm(removal: "Removal") -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            "Removing has to be confirmed, and standard input is no terminal.",
            hint="Add --yes to remove without being asked.",
        )
    question = (
        f"Remove {removal.model.name} ({gib(removal.freed_bytes)}) from {removal.model.path}?"
    )
    if not typer.confirm(question, err=True):
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def _show(removal: "Removal", *, dry_run: bool, as_json: bool) -> None:
    screen = Screen()
    model = removal.model
    if as_json:
        screen.write_json(
            {
                "dry_run": dry_run,
                "name": model.name,
                "path": str(model.path),
                "paths": [str(path) for path in removal.paths],
                "freed_bytes": removal.freed_bytes,
            }
        )
        return
    what = "Would remove" if dry_run else "Removed"
    would = "would be " if dry_run else ""
    screen.write(f"{what} {model.name}; {gib(removal.freed_bytes)} {would}freed.\n")
    if dry_run:
        screen.write("".join(f"  {path}\n" for path in removal.paths))
