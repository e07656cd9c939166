"""`mtplx bench memory`: what weights and caches take."""

from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.commands.bench.flags import (
    CompareOption,
    JsonOption,
    MaxTokensOption,
    ModelOption,
    OutOption,
    ProfileOption,
    QuietOption,
    parse_bits,
    parse_numbers,
)
from mtplx.commands.bench.frame import open_frame
from mtplx.commands.bench.view import Grid, mib

if TYPE_CHECKING:
    from mtplx.runtime.bench.report import MemoryReport


def memory(
    model: ModelOption = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Tokens of the prompt.",
            show_default="128,1024,4096 as far as there is room",
        ),
    ] = None,
    kv_bits: Annotated[
        str, typer.Option(metavar="LIST", help="Bits of the attention cache; off is as computed.")
    ] = "off,8,4",
    depth: Annotated[int, typer.Option(help="Drafts a round, 0 to 8.")] = 3,
    max_tokens: MaxTokensOption = 16,
    compare: CompareOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    quiet: QuietOption = False,
) -> None:
    """Measure peaks while reading and decoding, and the caches of trunk and head, by context and kv_bits.

    Peaks count the arrays of MLX, weights included, not memory that MLX keeps for later. "a token" is what one more
    token of context adds to the rows in use; the caches themselves keep spare room. What cannot be quantised is
    reported, and left out. --kv-bits goes before the kv_bits of a profile.

    Example: mtplx bench memory --model DIR

    Example: mtplx bench memory --model DIR --context 1024,8192 --kv-bits off,8 --compare mlx-lm --json
    """
    from mtplx.runtime.bench.memory import MemorySettings, measure_memory

    settings = MemorySettings(
        contexts=None if context is None else parse_numbers("context", context),
        kv_bits=parse_bits(kv_bits),
        depth=depth,
        max_tokens=max_tokens,
    )
    frame = open_frame(model, profile, out, as_json=as_json, quiet=quiet)
    with frame.screen.progress() as progress:
        report = measure_memory(
            frame.folder,
            settings,
            frame.options,
            with_stock=compare is not None,
            on_progress=progress.update,
        )
    frame.finish(report, [memory_grid(report)])


def memory_grid(report: "MemoryReport") -> Grid:
    """A line for each system and context."""
    weights = report.weights
    title = (
        f"Memory in MiB: trunk {mib(weights.trunk_bytes)}, head {mib(weights.head_bytes)}; "
        f"{report.max_tokens} tokens at depth {report.depth}"
    )
    headings = (
        "system",
        "kv_bits",
        "context",
        "peak, reading",
        "peak, decoding",
        "trunk cache",
        "head cache",
        "trunk, bytes a token",
        "head, bytes a token",
    )
    lines = [
        (
            row.name,
            "off" if row.kv_bits is None else str(row.kv_bits),
            str(row.context),
            mib(row.prefill_peak_bytes),
            mib(row.decode_peak_bytes),
            mib(row.trunk_cache_bytes),
            mib(row.head_cache_bytes),
            _bytes(row.trunk_bytes_per_token),
            _bytes(row.head_bytes_per_token),
        )
        for row in report.rows
    ]
    return Grid(title, headings, lines)


def _bytes(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
