"""`mtplx bench prefill`: time to the first token."""

from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.commands.bench.flags import (
    CompareOption,
    JsonOption,
    ModelOption,
    OutOption,
    ProfileOption,
    QuietOption,
    RepeatsOption,
    parse_numbers,
)
from mtplx.commands.bench.frame import open_frame
from mtplx.commands.bench.view import Grid, mib, milliseconds, span

if TYPE_CHECKING:
    from mtplx.runtime.bench.report import PrefillReport


def prefill(
    model: ModelOption = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Prompt lengths in tokens.",
            show_default="128,512,2048,8192 as far as there is room",
        ),
    ] = None,
    chunks: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Prompt tokens read at a time, like 256,512,2048.",
            show_default="the prefill_chunk of the settings",
        ),
    ] = None,
    compare: CompareOption = None,
    repeats: RepeatsOption = 7,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    quiet: QuietOption = False,
) -> None:
    """Measure the time to the first token by length of the prompt, with and without the head reading along.

    "primed" is what MTP needs: the head reads every chunk but the last one along with the trunk, and the last one
    before its first draft ("head, then"). All systems take turns; with --compare mlx-lm reads in the same chunks.

    Example: mtplx bench prefill --model DIR --compare mlx-lm

    Example: mtplx bench prefill --model DIR --lengths 1024,4096 --chunks 256,512,2048 --json
    """
    from mtplx.runtime.bench.prefill import PrefillSettings, measure_prefill

    settings = PrefillSettings(
        lengths=None if lengths is None else parse_numbers("lengths", lengths),
        chunks=() if chunks is None else parse_numbers("chunks", chunks),
        repeats=repeats,
    )
    frame = open_frame(model, profile, out, as_json=as_json, quiet=quiet)
    with frame.screen.progress() as progress:
        report = measure_prefill(
            frame.folder,
            settings,
            frame.options,
            with_stock=compare is not None,
            on_progress=progress.update,
        )
    frame.finish(report, prefill_grids(report))


def prefill_grids(report: "PrefillReport") -> list[Grid]:
    """A line for each length, chunk size and system, in two tables: times, and what goes with them."""
    point = ("system", "tokens", "chunk")
    points = [(row.name, str(row.length), str(row.chunk)) for row in report.rows]
    times = [
        (milliseconds(row.ttft_s), span(row.over_plain), span(row.over_mlx_lm))
        for row in report.rows
    ]
    details = [
        (span(row.tok_s, 0), milliseconds(row.head_rest_s), mib(row.peak_bytes))
        for row in report.rows
    ]
    return [
        Grid(
            f"Reading prompts, {report.repeats} repeats",
            (*point, "first token, ms", "over plain", "over mlx-lm"),
            [(*where, *cells) for where, cells in zip(points, times, strict=True)],
        ),
        Grid(
            "The same in detail",
            (*point, "tok/s", "head, then, ms", "peak, MiB"),
            [(*where, *cells) for where, cells in zip(points, details, strict=True)],
        ),
    ]
