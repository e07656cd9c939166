"""Tables of several columns, plain and on a terminal."""

from __future__ import annotations

import io

import pytest

from mtplx.commands.bench.view import Grid, mib, milliseconds, print_grid, shares, span
from mtplx.runtime.bench.part import Interval

GRID = Grid("Speeds", ("system", "tok/s"), [("plain", "50.0"), ("mtp-1 [x]", "123.4")])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_are_aligned_the_first_to_the_left() -> None:
    out = io.StringIO()
    print_grid(out, GRID)
    assert out.getvalue() == (
        "Speeds\n"
        "  system     tok/s\n"
        "  plain       50.0\n"
        "  mtp-1 [x]  123.4\n"
        "\n"
    )  # fmt: skip


def test_a_terminal_gets_the_same_cells_and_nothing_is_taken_for_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    print_grid(out, GRID)
    shown = out.getvalue()
    assert all(cell in shown for line in (GRID.headings, *GRID.lines) for cell in line)
    assert "─" in shown


def test_figures_have_the_digits_that_mean_something() -> None:
    found = Interval(median=0.01234, low=0.01, high=0.02)
    assert span(found) == "0.01 (0.01 to 0.02)"
    assert milliseconds(found) == "12.3 (10.0 to 20.0)"
    assert (span(None), milliseconds(None), shares(()), mib(None)) == ("-", "-", "-", "-")
    assert shares((0.875, 0.5)) == "0.88 0.50"
    assert mib(3 * 2**19) == "1.5"
