"""`mtplx pull`: get a model from the hub."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.commands.forge.flags import JsonOption, QuietOption, RevisionOption
from mtplx.commands.forge.probe import gib
from mtplx.contracts.errors import INTERRUPTED_EXIT_CODE
from mtplx.render import Row, print_error
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.pulling import Pull


def pull(
    repo: Annotated[
        str, typer.Argument(help="ORG/NAME, hf:ORG/NAME, or a model's address on the web.")
    ],
    revision: RevisionOption = None,
    parent: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Make a plain folder DIR/ORG--NAME instead of using the hub's cache."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be fetched, and keep nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Fetch without asking.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fetch a model from the hub, verify its checksums, and say what it is.

    It is judged from its headers first: what cannot run is not fetched. The hub's cache holds it,
    where other tools find it too, and every command takes its name as --model. Files of use only
    to other programs are left out. A pull that was stopped goes on with the same command.

    Example: mtplx pull Qwen/Qwen3.5-4B --dry-run

    Example: mtplx pull Qwen/Qwen3.5-4B --revision main --yes

    Example: mtplx pull Qwen/Qwen3.5-4B --dir models
    """
    from mtplx.pulling import plan_pull, run_pull

    screen = Screen(quiet=quiet or as_json)
    planned = plan_pull(repo, revision, parent.expanduser() if parent else None)
    if dry_run:
        _show(planned, screen, as_json=as_json, is_done=False)
        raise typer.Exit(planned.found.exit_code)
    if not screen.quiet:
        screen.table(planned.source.repo, _rows(planned, is_done=False))
    if planned.found.error is None and planned.missing_bytes and not (yes or as_json):
        _confirm(planned)
    try:
        with screen.progress() as progress:
            label = f"fetching {planned.source.repo}"
            done = run_pull(planned, lambda n, total: progress.update(label, n / max(total, 1)))
    except KeyboardInterrupt:
        screen.note("complete files are kept; the same command goes on")
        raise
    _show(done, screen, as_json=as_json, is_done=True)
    raise typer.Exit(done.found.exit_code)


def _confirm(planned: "Pull") -> None:
    """Ask before anything is fetched, where there is somebody to ask."""
    if not sys.stdin.isatty():
        return
    if not typer.confirm(f"Fetch {gib(planned.missing_bytes)}?", default=True, err=True):
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def _show(pull: "Pull", screen: Screen, *, as_json: bool, is_done: bool) -> None:
    if as_json:
        screen.write_json({"dry_run": not is_done, **pull.to_json()})
        return
    screen.table(pull.source.repo, _rows(pull, is_done=is_done), sys.stdout)
    if pull.found.error is not None:
        print_error(sys.stderr, pull.found.error)


def _rows(pull: "Pull", *, is_done: bool) -> list[Row]:
    found = pull.found
    rows = [
        Row("commit", pull.source.commit),
        Row("path", str(pull.target)),
        Row("family", found.family.title if found.family else "unknown"),
        Row("tier", str(found.tier)),
        *(Row("reason", reason) for reason in found.reasons),
        Row("size", f"{gib(pull.total_bytes)} in {len(pull.source.files)} files"),
    ]
    if not is_done:
        return [*rows, Row("to fetch", gib(pull.missing_bytes))]
    name = pull.source.repo if pull.parent is None else pull.target
    return [
        *rows,
        Row("checksums", "all files are what the hub announces"),
        Row("next", f'mtplx run --model {name} "Hello"'),
    ]
