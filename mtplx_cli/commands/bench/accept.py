"""`mtplx bench accept`: how many drafts stay."""

from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.commands.bench.flags import (
    JsonOption,
    MaxTokensOption,
    ModelOption,
    OutOption,
    ProfileOption,
    PromptsOption,
    QuietOption,
    SeedOption,
    TopKOption,
    TopPOption,
)
from mtplx.commands.bench.frame import open_frame
from mtplx.commands.bench.view import Grid, shares, span

if TYPE_CHECKING:
    from mtplx.runtime.bench.report import AcceptReport


def accept(
    model: ModelOption = None,
    depth: Annotated[int, typer.Option(help="Drafts a round, 1 to 8.")] = 4,
    prompts: PromptsOption = 10,
    max_tokens: MaxTokensOption = 64,
    temperature: Annotated[float, typer.Option(help="Of the laws; greedy comes beside it.")] = 0.8,
    top_p: TopPOption = 0.95,
    top_k: TopKOption = 40,
    seed: SeedOption = 0,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    quiet: QuietOption = False,
) -> None:
    """Count accepted drafts by depth, domain and law over 30 prompts, greedily and with sampling.

    The share of a depth is that of all its drafts, whatever came of the drafts before it. Nothing is timed: a law
    that accepts more may still be slower. "over coupled" compares tokens a round, paired by prompt.

    Example: mtplx bench accept --model DIR

    Example: mtplx bench accept --model DIR --depth 2 --temperature 1 --top-p 1 --top-k 0 --json
    """
    from mtplx.commands.bench.sampling import make_sampling
    from mtplx.runtime.bench.accept import AcceptSettings, measure_acceptance

    settings = AcceptSettings(
        depth=depth,
        prompts=prompts,
        max_tokens=max_tokens,
        sampling=make_sampling(temperature, top_p, top_k, seed),
    )
    frame = open_frame(model, profile, out, as_json=as_json, quiet=quiet)
    with frame.screen.progress() as progress:
        report = measure_acceptance(
            frame.folder, settings, frame.options, on_progress=progress.update
        )
    frame.finish(report, [accept_grid(report)])


def accept_grid(report: "AcceptReport") -> Grid:
    """A line for each setting and domain."""
    sampling = report.sampling
    title = (
        f"Drafts at depth {report.depth}, {report.max_tokens} tokens each; the laws at temperature "
        f"{sampling.temperature:g}, top-p {sampling.top_p:g}, top-k {sampling.top_k}"
    )
    headings = (
        "setting",
        "domain",
        "prompts",
        "tokens a round",
        "accepted by depth",
        "over coupled",
    )
    lines = [
        (
            row.setting,
            row.domain,
            str(row.prompts),
            f"{row.tokens_per_round:.2f}",
            shares(row.acceptance),
            span(row.over_coupled),
        )
        for row in report.rows
    ]
    return Grid(title, headings, lines)
