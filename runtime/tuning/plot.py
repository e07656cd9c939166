"""A picture of what tuning measured: speed and acceptance by depth, and what rows cost."""

from __future__ import annotations

import io
import os
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mtplx.contracts.errors import InvalidRequestError, UsageError
from mtplx.contracts.files import write_bytes
from mtplx.runtime.tuning.record import DepthRow, TuningRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")

_WINNER, _OTHER, _DROPPED = "tab:green", "tab:blue", "tab:gray"


def require_plot(file: Path) -> None:
    """Refuse a picture that could not be written, before anything is measured.

    Raises:
        InvalidRequestError: the name does not end in .png or .svg.
        UsageError: matplotlib is not installed, or the folder does not exist or cannot be written.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise InvalidRequestError(
            f"--plot: {file} ends in {file.suffix!a}, expected {' or '.join(SUFFIXES)}.", key="plot"
        )
    if not file.parent.is_dir():
        raise UsageError(f"--plot: the folder {file.parent} does not exist.", hint="Make it first.")
    if file.is_dir() or not os.access(file.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--plot: {file} cannot be written.", hint="Choose another place.")
    if find_spec("matplotlib") is None:
        raise UsageError(
            "--plot needs matplotlib, which is not installed.",
            hint='Install it with: pip install "mtplx[plot]"',
        )


def write_plot(record: TuningRecord, file: Path) -> None:
    """Draw `record` into `file`, PNG or SVG by its ending; no display is needed.

    Raises:
        UsageError: it cannot be written, or `require_plot` refuses it.
        ResourceError: the disk is full.
    """
    require_plot(file)
    kind = file.suffix.lower().removeprefix(".")
    write_bytes(file, _draw(record, kind))


def _draw(record: TuningRecord, kind: str) -> bytes:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.0), layout="constrained")
    speed, acceptance, costs = figure.subplots(1, 3)
    _draw_speed(speed, record)
    _draw_acceptance(acceptance, record)
    _draw_costs(costs, record)
    chip = record.conditions.get("chip")
    # A name with dollar signs is no formula.
    figure.suptitle(f"{record.model} on {chip}: {record.reason}", fontsize=9, parse_math=False)
    buffer = io.BytesIO()
    # Text that can be searched and read aloud, not outlines of letters.
    with rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        # A letter of the model's name that the font lacks becomes a box.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, format=kind, dpi=150)
    return buffer.getvalue()


def _draw_speed(axes: Axes, record: TuningRecord) -> None:
    for place, row in enumerate(record.rows):
        speed = row.tok_s
        axes.errorbar(
            [place],
            [speed.median],
            yerr=[[speed.median - speed.low], [speed.high - speed.median]],
            fmt="o",
            capsize=4,
            color=_colour(row, record),
        )
    axes.set_xticks(range(len(record.rows)), [_tick(row) for row in record.rows])
    axes.set_ylim(bottom=0.0)
    axes.set(
        title=f"speed ({100 * record.confidence:.0f} % intervals)",
        xlabel="depth",
        ylabel="tokens a second",
    )


def _draw_acceptance(axes: Axes, record: TuningRecord) -> None:
    """The deepest fixed depth that was measured shows all positions of a draft."""
    rows = [row for row in record.rows if row.depth not in (0, "auto") and row.acceptance]
    rows = rows or [row for row in record.rows if row.acceptance]
    deepest = max(rows, key=lambda row: len(row.acceptance), default=None)
    if deepest is not None:
        shares = {"all": deepest.acceptance, **deepest.acceptance_by_domain}
        for name, values in shares.items():
            style = "o-" if name == "all" else ".--"
            axes.plot(range(1, len(values) + 1), values, style, label=name)
        axes.legend(fontsize=8)
        axes.set_xticks(range(1, len(deepest.acceptance) + 1))
    axes.set_ylim(0.0, 1.05)
    axes.set(title="drafts accepted", xlabel="position of the draft", ylabel="share")


def _draw_costs(axes: Axes, record: TuningRecord) -> None:
    rows = range(1, len(record.costs.v) + 1)
    axes.plot(rows, record.costs.v, "o-", label="v(M)")
    axes.set_xticks(rows)
    axes.set_ylim(bottom=0.0)
    subtitle = f"c {record.costs.c:.3f}, o {record.costs.o:.3f}"
    axes.set(title=f"cost of a forward ({subtitle})", xlabel="rows M", ylabel="plain steps")
    axes.legend(fontsize=8)


def _colour(row: DepthRow, record: TuningRecord) -> str:
    if row.depth == record.depth:
        return _WINNER
    return _DROPPED if row.was_dropped else _OTHER


def _tick(row: DepthRow) -> str:
    return "plain" if row.depth == 0 else str(row.depth)
