"""`mtplx bench`: what a model costs and gains on this machine."""

import typer

from mtplx.commands.bench.accept import accept
from mtplx.commands.bench.memory import memory
from mtplx.commands.bench.prefill import prefill
from mtplx.commands.bench.serve import serve
from mtplx.commands.bench.speed import speed
from mtplx.commands.bench.verify_cost import verify_cost

bench = typer.Typer(
    help="Measure speed, rounds, acceptance, prefill and memory of a model, and the server.",
    no_args_is_help=True,
)

for command in (speed, verify_cost, accept, prefill, memory, serve):
    bench.command()(command)
