"""What `mtplx tune` shows: a table that grows while it measures, and the result."""

import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from mtplx.render import Row, is_rich
from mtplx.screen import Screen

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from mtplx.runtime.tuning.record import DepthRow
    from mtplx.runtime.tuning.rounds import Measurement
    from mtplx.runtime.tuning.tune import TuneResult

# Drawing takes time from measuring, and intervals take more than the rest of it.
_INTERVAL_S = 0.5
_ROWS_INTERVAL_S = 3.0
_HEADINGS = ("depth", "tok/s", "over plain", "accepted", "rounds")


class TuneView:
    """A progress line while the model is read, then a live table on a terminal; use as a context manager."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._stack = ExitStack()
        self._live: Live | None = None
        self._rows: list[DepthRow] = []
        self._next_s = self._next_rows_s = 0.0

    def __enter__(self) -> Self:
        self._progress = self._stack.enter_context(self._screen.progress())
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        self._stack.close()

    def progress(self, label: str, fraction: float) -> None:
        """Show how far reading the model is."""
        self._progress.update(label, fraction)

    def show(self, measurement: "Measurement") -> None:
        """Show what is known by now."""
        if self._screen.quiet:
            return
        if not is_rich(sys.stderr):
            self._progress.update(measurement.label, measurement.fraction)
            return
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + _INTERVAL_S
        if now >= self._next_rows_s:
            self._next_rows_s = now + _ROWS_INTERVAL_S
            self._rows = measurement.rows()
        self._draw(live_table(measurement.label, measurement.fraction, self._rows))

    def _draw(self, table: "Table") -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._progress.close()
            self._live = Live(
                console=Console(file=sys.stderr),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(table, refresh=True)


def live_table(label: str, fraction: float, rows: "Iterable[DepthRow]") -> "Table":
    """The table while measuring; `fraction` of the time is used up."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    caption = Text(f"{fraction:.0%} of the time, {label}")
    table = Table(box=SIMPLE, caption=caption, caption_justify="left")
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "depth" else "right")
    for row in rows:
        style = "dim" if row.was_dropped else None
        table.add_row(*(Text(cell) for cell in depth_cells(row)), style=style)
    return table


def depth_cells(row: "DepthRow") -> tuple[str, str, str, str, str]:
    """One way of decoding, in the columns of the table."""
    from mtplx.runtime.tuning.record import depth_name

    over = "-"
    if row.gain is not None:
        over = f"{row.gain.median:.2f}x ({row.gain.low:.2f} to {row.gain.high:.2f})"
    speed = f"{row.tok_s.median:.1f} ({row.tok_s.low:.1f} to {row.tok_s.high:.1f})"
    accepted = " ".join(f"{share:.2f}" for share in row.acceptance) or "-"
    rounds = f"{row.rounds}{', then dropped' if row.was_dropped else ''}"
    return depth_name(row.depth), speed, over, accepted, rounds


def result_rows(result: "TuneResult") -> list[Row]:
    """The result for reading."""
    record = result.record
    rows = []
    for row in record.rows:
        name, speed, over, accepted, rounds = depth_cells(row)
        facts = [f"{speed} tok/s"]
        if row.gain is not None:
            facts += [f"{over} plain", f"accepted {accepted}"]
        rows.append(Row(name, ", ".join([*facts, f"rounds {rounds}"])))
    v = " ".join(f"{cost:.2f}" for cost in record.costs.v)
    rows += [
        Row("costs", f"v {v}, c {record.costs.c:.3f}, o {record.costs.o:.3f}"),
        Row(
            "intervals",
            f"{100 * record.confidence:.0f} %, rounds {record.rounds} of {record.tokens} tokens",
        ),
        Row("fastest", record.summary),
        Row("result", _fate(result)),
    ]
    return rows


def _fate(result: "TuneResult") -> str:
    """What became of the result."""
    when = f"{result.record.time:%Y-%m-%d %H:%M} UTC"
    if result.was_known:
        return f"known since {when}; --retune measures again"
    if result.is_saved:
        return f"saved after {result.seconds:.0f} s; run and chat use it"
    return f"not saved, after {result.seconds:.0f} s"
