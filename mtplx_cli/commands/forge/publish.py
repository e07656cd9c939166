"""`mtplx forge publish`: put a verified artifact on the hub."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtplx.commands.forge.flags import JsonOption, QuietOption, YesOption
from mtplx.contracts.errors import INTERRUPTED_EXIT_CODE, UsageError
from mtplx.render import Row
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.forge.publish.preparation import Publication
    from mtplx.forge.publish.progress import Report
    from mtplx.forge.publish.publish import Published
    from mtplx.forge.run_folder import RunFolder


def publish(
    path: Annotated[Path, typer.Argument(help="The folder of an artifact.")],
    repo: Annotated[str, typer.Option(help="The repository to publish to: ORG/NAME.")],
    private: Annotated[
        bool, typer.Option("--private", help="Create the repository as a private one.")
    ] = False,
    license: Annotated[
        str | None,
        typer.Option(help="SPDX id of the licence; that of README.md or LICENSE if not given."),
    ] = None,
    readme_path: Annotated[
        Path | None, typer.Option(help="A model card whose text replaces the generated one.")
    ] = None,
    force_unverified: Annotated[
        bool,
        typer.Option("--force-unverified", help="Publish what is not verified, and label it so."),
    ] = False,
    token_stdin: Annotated[
        bool,
        typer.Option(
            "--token-stdin", help="Read the token from standard input; else HF_TOKEN or the login."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for publish.json, the progress of the upload.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the card, send nothing.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check an artifact, write its model card, and upload what differs in one commit.

    Nothing is sent before all checks have passed, and nothing is visible before the commit. An
    upload that was stopped goes on with the same command.

    Example: mtplx forge publish models/Qwen3.5-4B-mtplx-optimized-speed --repo me/Qwen3.5-4B-MTP
    """
    from mtplx.forge.publish.preparation import PublishRequest, prepare_publication
    from mtplx.forge.publish.publish import publish as publish_artifact
    from mtplx.forge.publish.token import find_token

    screen = Screen(quiet=quiet or as_json)
    run = _run_folder(out, path.expanduser())
    request = PublishRequest(
        path.expanduser(), repo, private, license, readme_path, force_unverified
    )
    with screen.progress() as progress:
        publication = prepare_publication(
            request, lambda done, total: progress.update("checking", done / max(total, 1))
        )
    _show_checks(publication, screen, as_json=as_json, in_full=dry_run)
    if dry_run:
        _show_plan(publication, screen, as_json=as_json)
        return
    token = find_token(sys.stdin if token_stdin else None)
    if not (yes or as_json):
        _confirm(publication, stdin_is_taken=token_stdin)
    try:
        with screen.progress() as progress, _reports(run) as write:

            def report(state: dict[str, Any]) -> None:
                total = max(state["total_bytes"], 1)
                progress.update(f"uploading to {repo}", state["bytes_uploaded"] / total)
                write(state)

            done = publish_artifact(publication, token, report)
    except KeyboardInterrupt as stopped:
        screen.note(f"{stopped or 'stopped'}; the same command goes on")
        raise
    _show_result(done, screen, as_json=as_json)


def _show_checks(
    publication: "Publication", screen: Screen, *, as_json: bool, in_full: bool
) -> None:
    """Tell what was found wrong and end the command there; on request also what was right."""
    try:
        publication.require_passed()
    except UsageError as error:
        if as_json:
            screen.write_json({"checks": _checks(publication), "error": error.to_json()})
            raise typer.Exit(error.exit_code) from None
        raise
    if in_full and not as_json:
        rows = [Row(check.id, check.message) for check in publication.checks]
        screen.table("Checks, all passed", rows, sys.stdout)


def _show_plan(publication: "Publication", screen: Screen, *, as_json: bool) -> None:
    files = publication.files()
    total = sum(files.values())
    if as_json:
        screen.write_json(
            {
                "dry_run": True,
                "repo": publication.request.repo,
                "labels": list(publication.labels),
                "checks": _checks(publication),
                "files": files,
                "total_bytes": total,
                "message": publication.message,
                "card": publication.card,
            }
        )
        return
    rows = [Row(name, f"{size} bytes") for name, size in files.items()]
    screen.table(f"Would upload {total} bytes to {publication.request.repo}", rows, sys.stdout)
    screen.write(f"\nREADME.md\n\n{publication.card}")


def _confirm(publication: "Publication", *, stdin_is_taken: bool) -> None:
    if stdin_is_taken or not sys.stdin.isatty():
        raise UsageError(
            "Publishing has to be confirmed, and standard input is no terminal.",
            hint="Add --yes to publish without being asked.",
        )
    request, files = publication.request, publication.files()
    labels = f", labelled {', '.join(publication.labels)}" if publication.labels else ""
    question = (
        f"Publish {len(files)} files, {sum(files.values()) / 1e9:.2f} GB, to {request.repo} "
        f"({'private' if request.private else 'public'}{labels})?"
    )
    if not typer.confirm(question, err=True):
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def _run_folder(out: Path | None, artifact: Path) -> "RunFolder | None":
    from mtplx.forge.run_folder import RunFolder

    if out is None:
        return None
    folder = out.expanduser().resolve()
    if folder.is_relative_to(artifact.resolve()):
        raise UsageError(
            f"--out {out} lies in the artifact, and would become part of it.",
            hint="Give a folder beside it, such as the run folder of its build.",
        )
    return RunFolder(folder)


@contextmanager
def _reports(run: "RunFolder | None") -> Iterator["Report"]:
    """Where the states of the upload go; a run folder can be cancelled by its name."""
    if run is None:
        yield lambda _state: None
        return
    from mtplx.forge.cancel import registered

    def write(state: dict[str, Any]) -> None:
        if state["finished"]:
            run.finish("publish", state)
        else:
            run.progress("publish", state)

    with run.lock(), registered(run):
        yield write


def _show_result(done: "Published", screen: Screen, *, as_json: bool) -> None:
    if as_json:
        screen.write_json(done.to_json())
        return
    changes = done.changes
    if not changes:
        screen.write(f"{done.repo} holds all of it already, at {done.revision}: no commit made.\n")
        return
    rows = [
        Row("revision", done.revision),
        Row("visibility", done.visibility),
        Row("licence", done.license_spdx),
        Row("uploaded", f"{len(changes.added)} files, {changes.size / 1e6:.1f} MB"),
        Row("unchanged", f"{len(changes.unchanged)} files"),
        Row("deleted", ", ".join(changes.deleted) or "none"),
    ]
    screen.table(f"Published to {done.repo}", rows, sys.stdout)


def _checks(publication: "Publication") -> list[dict[str, Any]]:
    return [check.to_json() for check in publication.checks]
