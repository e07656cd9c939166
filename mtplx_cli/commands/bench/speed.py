"""`mtplx bench speed`: decoding speed, plain and with MTP, in turns."""

from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.commands.bench.flags import (
    CompareOption,
    JsonOption,
    MaxTokensOption,
    ModelOption,
    OutOption,
    ProfileOption,
    PromptsOption,
    QuietOption,
    RepeatsOption,
    SeedOption,
    TopKOption,
    TopPOption,
    parse_depths,
    parse_numbers,
)
from mtplx.commands.bench.frame import open_frame
from mtplx.commands.bench.view import Grid, mib, milliseconds, shares, span

if TYPE_CHECKING:
    from mtplx.runtime.bench.report import SpeedPart, SpeedReport, SpeedRow


def speed(
    model: ModelOption = None,
    depths: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Depths beside plain decoding, separated by commas; `auto` is the adaptive one.",
        ),
    ] = "1,2,3,4,auto",
    prompts: PromptsOption = 1,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Also decode behind so many tokens of other text, like 128,1024,4096.",
        ),
    ] = None,
    compare: CompareOption = None,
    repeats: RepeatsOption = 9,
    max_tokens: MaxTokensOption = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    top_p: TopPOption = 1.0,
    top_k: TopKOption = 0,
    seed: SeedOption = 0,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    quiet: QuietOption = False,
) -> None:
    """Decode prompts of code, prose and chat plainly, with MTP at each depth and with mlx-lm, in turns.

    Ratios are formed repeat by repeat, so that drift of the machine cancels; intervals are bootstrapped. "faster" and
    "slower" mean that the whole interval lies on one side of plain decoding and signed ranks agree: all of a table
    together err in fewer than 5 % of runs.
    End tokens are ignored, so that all answers are equally long. mlx-lm reads prompts in chunks of its own choice.

    Example: mtplx bench speed --model DIR --depths 1,3 --compare mlx-lm

    Example: mtplx bench speed --model DIR --context 128,1024 --json --out speed.json
    """
    from mtplx.commands.bench.sampling import make_sampling
    from mtplx.runtime.bench.speed import SpeedSettings, compare_speed

    settings = SpeedSettings(
        depths=parse_depths(depths),
        prompts=prompts,
        contexts=() if context is None else parse_numbers("context", context),
        repeats=repeats,
        max_tokens=max_tokens,
        sampling=make_sampling(temperature, top_p, top_k, seed),
    )
    frame = open_frame(model, profile, out, as_json=as_json, quiet=quiet)
    with frame.screen.progress() as progress:
        report = compare_speed(
            frame.folder,
            settings,
            frame.options,
            with_stock=compare is not None,
            on_progress=progress.update,
        )
    frame.finish(report, speed_grids(report))


def speed_grids(report: "SpeedReport") -> list[Grid]:
    """Two tables for the suite and for each context: speeds, and what goes with them."""
    speeds = ("system", "tok/s", "over plain", "", "over mlx-lm", "text")
    details = ("system", "first token, ms", "peak, MiB", "tokens a round", "accepted by depth")
    grids = []
    for part in report.parts:
        title = _title(part, report)
        grids.append(Grid(title, speeds, [_speed_cells(row) for row in part.rows]))
        grids.append(Grid("The same in detail", details, [_detail_cells(row) for row in part.rows]))
    return grids


def _title(part: "SpeedPart", report: "SpeedReport") -> str:
    sampling = report.sampling
    how = f"temperature {sampling.temperature:g}" if sampling.temperature else "greedy"
    what = (
        f"{len(part.prompt_tokens)} prompts"
        if part.context is None
        else f"behind {part.context} tokens"
    )
    return (
        f"Decoding speed, {what}, {report.max_tokens} tokens each, {how}, {report.repeats} repeats"
    )


def _speed_cells(row: "SpeedRow") -> tuple[str, ...]:
    return (
        row.name,
        f"{row.tok_s.median:.1f}",
        span(row.over_plain),
        row.verdict or "",
        span(row.over_mlx_lm),
        "same" if all(row.text_equals_plain.values()) else "differs",
    )


def _detail_cells(row: "SpeedRow") -> tuple[str, ...]:
    return (
        row.name,
        milliseconds(row.ttft_s),
        mib(row.peak_bytes),
        f"{row.tokens_per_round:.2f}",
        shares(row.acceptance),
    )
