"""Reports of `mtplx bench` for reading."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from mtplx.render import Row, is_rich

if TYPE_CHECKING:
    from mtplx.runtime.bench.part import Interval, MachineConditions, Report

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of several columns; the first is aligned to the left, the others to the right."""

    title: str
    headings: tuple[str, ...]
    lines: Sequence[Sequence[str]]


def print_grid(stream: TextIO, grid: Grid) -> None:
    """Print the table, and an empty line after it."""
    if is_rich(stream):
        _print_rich(stream, grid)
        return
    table = [grid.headings, *grid.lines]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print(grid.title, file=stream)
    for line in table:
        first, *rest = (
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print(f"  {'  '.join([first, *rest])}".rstrip(), file=stream)
    print(file=stream, flush=True)


def _print_rich(stream: TextIO, grid: Grid) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(grid.title), box=SIMPLE, title_justify="left", pad_edge=False)
    for number, heading in enumerate(grid.headings):
        table.add_column(Text(heading), justify="right" if number else "left", no_wrap=not number)
    for line in grid.lines:
        table.add_row(*map(Text, line))
    Console(file=stream).print(table)


def condition_rows(report: "Report") -> list[Row]:
    """What the figures hold for, and what was not measured."""
    found = report.conditions
    options = found.options
    blas = f" ({found.blas})" if found.blas else ""
    bits = "off" if options.kv_bits is None else str(options.kv_bits)
    rows = [
        Row("model", f"{found.model} ({found.family}, {found.tier}), {found.identity[:12]}"),
        Row(
            "computed on",
            f"{found.device}{blas}, {found.back_end} back end, {'/'.join(found.dtypes)}",
        ),
        Row(
            "options",
            f"profile {options.profile}, acceptance {options.acceptance}, "
            f"prefill_chunk {options.prefill_chunk}, kv_bits {bits}",
        ),
        *machine_rows(found),
    ]
    return rows + [Row("left out", f"{item.name}: {item.reason}") for item in report.left_out]


def machine_rows(found: "MachineConditions") -> list[Row]:
    """The machine, and what else it did."""
    versions = ", ".join(f"{name} {number}" for name, number in found.versions.items())
    return [
        Row(
            "machine",
            f"{found.processor}, {found.cores} cores, {found.memory_gib} GiB, {found.platform}",
        ),
        Row("versions", versions),
        Row("time", f"{found.started:%Y-%m-%d %H:%M} to {found.ended:%H:%M} UTC"),
        Row(
            "load",
            f"{found.load_start[0]:.1f} at the start, {found.load_end[0]:.1f} at the end; "
            f"other processes kept {found.other_cores:.1f} cores busy",
        ),
    ]


def span(found: "Interval | None", digits: int = 2) -> str:
    """A median with its interval; nothing to tell is `-`."""
    if found is None:
        return "-"
    low, high = f"{found.low:.{digits}f}", f"{found.high:.{digits}f}"
    return f"{found.median:.{digits}f} ({low} to {high})"


def milliseconds(found: "Interval | None") -> str:
    """Seconds with their interval as milliseconds."""
    if found is None:
        return "-"
    return f"{found.median * 1e3:.1f} ({found.low * 1e3:.1f} to {found.high * 1e3:.1f})"


def shares(values: Sequence[float]) -> str:
    """Shares by depth."""
    return " ".join(f"{value:.2f}" for value in values) or "-"


def mib(nbytes: int | None) -> str:
    """Bytes in MiB."""
    return "-" if nbytes is None else f"{nbytes / _MIB:.1f}"
