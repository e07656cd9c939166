"""The command line: one Typer app, and the one list of its commands."""

from collections.abc import Callable
from typing import Annotated

import typer

from mtplx.commands.bench.group import bench
from mtplx.commands.chat import chat
from mtplx.commands.config import config
from mtplx.commands.doctor import doctor
from mtplx.commands.forge.group import forge
from mtplx.commands.inspect import inspect
from mtplx.commands.models import models
from mtplx.commands.pull import pull
from mtplx.commands.remove import remove
from mtplx.commands.run import run
from mtplx.commands.serve import serve
from mtplx.commands.status import status
from mtplx.commands.stop import stop
from mtplx.commands.tune import tune
from mtplx.version import __version__

# A module of commands imports no more than typer at its top, so that --help stays instant.
COMMANDS: dict[str, Callable[..., None] | typer.Typer] = {
    "run": run,
    "chat": chat,
    "serve": serve,
    "status": status,
    "stop": stop,
    "inspect": inspect,
    "pull": pull,
    "models": models,
    "remove": remove,
    "forge": forge,
    "tune": tune,
    "bench": bench,
    "doctor": doctor,
    "config": config,
}

app = typer.Typer(
    name="mtplx",
    help="Exact multi-token-prediction decoding for local language models on MLX.",
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mtplx {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for name, command in COMMANDS.items():
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)
