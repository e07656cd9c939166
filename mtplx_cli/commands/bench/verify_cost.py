"""`mtplx bench verify-cost`: what rows, drafts and rounds cost."""

from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.commands.bench.flags import (
    JsonOption,
    ModelOption,
    OutOption,
    ProfileOption,
    QuietOption,
    RepeatsOption,
    parse_numbers,
)
from mtplx.commands.bench.frame import open_frame
from mtplx.commands.bench.view import Grid, milliseconds, span

if TYPE_CHECKING:
    from mtplx.runtime.bench.report import VerifyCostPart, VerifyCostReport


def verify_cost(
    model: ModelOption = None,
    rows: Annotated[int, typer.Option(help="Most rows of a forward, 2 to 64.")] = 16,
    depth: Annotated[int, typer.Option(help="Most drafts of a round, 1 to 8.")] = 4,
    context: Annotated[
        str, typer.Option(metavar="LIST", help="Tokens before the round, like 128,1024.")
    ] = "128",
    repeats: RepeatsOption = 15,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    quiet: QuietOption = False,
) -> None:
    """Measure v, c and o: forwards over several rows, drafts, and what a round takes beside them.

    v(M) is a forward over M rows, c a chain of drafts and o the rest of a round, all in forwards over one row of the
    same repeat. MTP at depth D pays when the tokens of a round exceed v(D + 1) + c(D) + o(D), over those of a plain
    round. Each is timed once in turn, again and again; intervals are bootstrapped.

    Example: mtplx bench verify-cost --model DIR

    Example: mtplx bench verify-cost --model DIR --rows 8 --context 128,2048 --json
    """
    from mtplx.runtime.bench.verify_cost import VerifyCostSettings, measure_costs

    settings = VerifyCostSettings(
        rows=rows, depth=depth, contexts=parse_numbers("context", context), repeats=repeats
    )
    frame = open_frame(model, profile, out, as_json=as_json, quiet=quiet)
    with frame.screen.progress() as progress:
        report = measure_costs(frame.folder, settings, frame.options, on_progress=progress.update)
    frame.finish(report, cost_grids(report))


def cost_grids(report: "VerifyCostReport") -> list[Grid]:
    """Three tables for each context."""
    return [grid for part in report.parts for grid in _part_grids(part)]


def _part_grids(part: "VerifyCostPart") -> list[Grid]:
    behind = f"behind {part.context} tokens"
    verify = [(str(cost.rows), milliseconds(cost.seconds), span(cost.v)) for cost in part.verify]
    drafts = [(str(cost.depth), span(cost.c), f"{cost.c_per_draft:.2f}") for cost in part.drafts]
    rounds = [(str(cost.depth), milliseconds(cost.seconds), span(cost.o)) for cost in part.rounds]
    grids = [Grid(f"Forwards {behind}", ("rows", "ms", "v"), verify)]
    if drafts:
        grids.append(Grid(f"Chains of drafts {behind}", ("drafts", "c", "c a draft"), drafts))
    return [*grids, Grid(f"Whole rounds {behind}", ("depth", "ms", "o"), rounds)]
