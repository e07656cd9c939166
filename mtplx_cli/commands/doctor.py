"""`mtplx doctor`: say what is wrong on this machine and how to mend it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.contracts.errors import MTPLXError, UsageError
from mtplx.render import Row
from mtplx.screen import Screen
from mtplx.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mtplx.config import Config
    from mtplx.runtime.diagnostics.report import Check, Report


def doctor(
    model: Annotated[
        str | None,
        typer.Option(help="Model folder to look at; the configured or the bundled one if none."),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also ask the hub, and compare every byte of the model."),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Let a warning fail, with its check's exit code.")
    ] = False,
    fix_hints: Annotated[
        bool, typer.Option("--fix-hints", help="Print the commands to run and nothing else.")
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write report, versions, names of settings and the last failure to FILE, "
            "without names, paths, addresses, tokens and prompts.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show only what needs action, and no progress.")
    ] = False,
) -> None:
    """Check Python, MLX, packages, folders, memory, the model and more; change nothing.

    MLX is tried in a process of its own: a crash of it is one failed check.

    Exit code: 0 when all checks pass or warn, else that of the first failure:
    2 settings and folders, 3 to 5 the model, 7 Python, MLX and packages,
    8 memory and disk, 11 the hub. With --strict a warning fails too.

    Example: mtplx doctor --model DIR

    Example for CI: mtplx doctor --json --strict --model DIR > report.json

    Example for a report of a problem: mtplx doctor --deep --bundle doctor.json
    """
    from mtplx.config import Config, config_file
    from mtplx.runtime.diagnostics.doctor import Request, examine
    from mtplx.settings import Settings

    if as_json and fix_hints:
        raise UsageError(
            "--json and --fix-hints contradict each other", hint="Leave one of the two out."
        )
    screen = Screen(quiet=quiet or as_json or fix_hints)
    settings = _settings()
    model = model if model is not None or settings is None else settings.model
    folder = _folder_of(model)
    request = Request(
        version=__version__,
        model=folder,
        kv_bits=None if settings is None else settings.kv_cache_bits,
        port=(settings or Settings()).port,
        load_config=Config.load,
        config_file=config_file(),
        deep=deep,
        strict=strict,
    )
    with screen.progress() as progress:
        report = examine(request, progress.update)
    if bundle is not None:
        _write_bundle(
            bundle, report, [name for name in (model, folder) if isinstance(name, str | Path)]
        )
        screen.note(f"wrote {bundle}; it has no names, paths, addresses, tokens or prompts")
    _show(report, screen, as_json=as_json, fix_hints=fix_hints)
    raise typer.Exit(report.exit_code)


def _settings() -> "Config | None":
    from mtplx.config import Config

    try:
        return Config.load()
    except UsageError:  # reported by a check of its own
        return None


def _folder_of(named: str | None) -> Path | MTPLXError:
    """The folder to look at, or why there is none."""
    from mtplx.opening import choose_folder

    try:
        return choose_folder(Screen(quiet=True), named)
    except MTPLXError as error:
        return error


def _write_bundle(file: Path, report: "Report", models: "Iterable[str | Path]") -> None:
    from mtplx.config import Config, config_file
    from mtplx.contracts.files import write_json
    from mtplx.runtime.diagnostics.bundle import make_bundle, read_config_keys
    from mtplx.runtime.diagnostics.last_failure import read_failure
    from mtplx.runtime.diagnostics.packages import read_installed
    from mtplx.runtime.diagnostics.redaction import Redactor

    content = make_bundle(
        report,
        installed=read_installed(),
        config_keys=read_config_keys(config_file(), Config.model_fields),
        last_failure=read_failure(),
        models=models,
        redactor=Redactor.of_this_machine(),
    )
    write_json(file.expanduser(), content, mode=0o600)


def _show(report: "Report", screen: Screen, *, as_json: bool, fix_hints: bool) -> None:
    if as_json:
        screen.write_json(report.model_dump(mode="json"))
    elif fix_hints:
        screen.write("".join(f"{command}\n" for command in report.commands()))
    else:
        wanted = [check for check in report.checks if check.needs_action or not screen.quiet]
        rows = [row for check in wanted for row in check_rows(check)]
        screen.table(f"mtplx {report.mtplx_version}: {report.overall}", rows, sys.stdout)


def check_rows(check: "Check") -> list[Row]:
    """A check for reading; what to do follows what was found."""
    rows = [Row(check.id, f"{check.status}: {check.observed}")]
    if check.needs_action:
        said = (("expected", check.expected), ("fix", check.fix), ("run", check.command))
        rows += [Row("", f"{name}: {text}") for name, text in said if text]
    return rows
