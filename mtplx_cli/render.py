"""Values as text: rich on a terminal, plain lines anywhere else."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from mtplx.contracts.errors import MTPLXError


class Row(NamedTuple):
    """One line of a table of facts."""

    name: str
    value: str


def is_rich(stream: TextIO) -> bool:
    """Whether `stream` is a terminal whose user wants more than plain text."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_plain


def emphasise(stream: TextIO, head: str, text: str, *, style: str) -> None:
    """Print `head text`, the head in `style` where colours are possible and wanted."""
    if not is_rich(stream):
        print(head, text, file=stream, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble((head, style), " ", text)
    Console(file=stream).print(line, soft_wrap=True, highlight=False)


def print_table(stream: TextIO, title: str, rows: Sequence[Row]) -> None:
    """Print facts below a title, values aligned."""
    if is_rich(stream):
        _print_rich_table(stream, title, rows)
        return
    width = max((len(row.name) for row in rows), default=0)
    print(title, file=stream)
    for row in rows:
        print(f"  {row.name:<{width}}  {row.value}", file=stream)
    stream.flush()


def _print_rich_table(stream: TextIO, title: str, rows: Sequence[Row]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), box=SIMPLE, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(Text(row.name), Text(row.value))
    Console(file=stream).print(table)


def print_error(stream: TextIO, error: MTPLXError) -> None:
    """Print what was wrong and what to do about it."""
    emphasise(stream, "error:", error.message, style="bold red")
    if error.hint:
        emphasise(stream, "hint:", error.hint, style="bold")


def generation_rows(result: Mapping[str, Any]) -> list[Row]:
    """The facts of one generation (`Generation.to_json()`) for reading."""
    stats = result["stats"]
    how = f"{result['generation_mode']}, depth {result['depth']}, {result['acceptance']}"
    rows = [
        Row("model", f"{result['model']} ({result['tier']})"),
        Row("decoding", f"{how}, seed {result['seed']}"),
        Row("prompt", f"{stats['prompt_tokens']} tokens, {_number(stats['prefill_tok_s'])} tok/s"),
        Row("first token", f"{_number(stats['ttft_s'], 3)} s"),
        Row(
            "answer",
            f"{stats['completion_tokens']} tokens, {_number(stats['decode_tok_s'])} tok/s, "
            f"ended by {result['finish_reason']}",
        ),
        Row("rounds", str(stats["rounds"])),
    ]
    rows += depth_rows(stats)
    costs = ", ".join(f"{letter} {_number(stats[letter], 3)}" for letter in "vco")
    return [*rows, Row("costs", costs)]


def device_row(device: Mapping[str, Any]) -> Row:
    """Where it was computed, in what types, and with which BLAS on the CPU."""
    where = device["device"]
    if device["device"] == "cpu":
        where += f" ({device['blas'] or 'reference BLAS'})"
    return Row("device", f"{where}, {device['back_end']} back end, {'/'.join(device['dtypes'])}")


def depth_rows(stats: Mapping[str, Any]) -> list[Row]:
    """How many drafts of each depth were accepted, one row a depth."""
    columns = zip(
        stats["drafted_by_depth"],
        stats["accepted_by_depth"],
        stats["acceptance_by_depth"],
        strict=True,
    )
    return [
        Row(f"depth {depth}", f"{accepted} of {drafted} accepted ({_number(rate, 3)})")
        for depth, (drafted, accepted, rate) in enumerate(columns, start=1)
    ]


def _number(value: float | Sequence[float] | None, digits: int = 1) -> str:
    if value is None:
        return "-"
    if isinstance(value, Sequence):
        return " ".join(_number(item, digits) for item in value)
    return f"{value:.{digits}f}"
