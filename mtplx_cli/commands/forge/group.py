"""`mtplx forge`: from a checkpoint to a verified, published artifact."""

import typer

from mtplx.commands.forge.brand import brand
from mtplx.commands.forge.build import build
from mtplx.commands.forge.cancel import cancel
from mtplx.commands.forge.discover import discover
from mtplx.commands.forge.inspect import inspect
from mtplx.commands.forge.probe import probe
from mtplx.commands.forge.publish import publish
from mtplx.commands.forge.verify import verify

forge = typer.Typer(
    help="Turn a checkpoint into a verified artifact, and publish it.", no_args_is_help=True
)

for command in (probe, build, verify, inspect, brand, discover, publish, cancel):
    forge.command()(command)
