"""What every subcommand does before and after it measures."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtplx.commands.bench.view import Grid, condition_rows, machine_rows, print_grid
from mtplx.contracts.errors import UsageError
from mtplx.opening import choose_folder
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.render import Row
    from mtplx.runtime.bench.part import Options, Report
    from mtplx.runtime.bench.report import ServeReport


@dataclass(frozen=True, slots=True)
class Frame:
    """A benchmark as it was asked for."""

    screen: Screen
    folder: Path
    options: "Options"
    as_json: bool
    out: Path | None

    def finish(self, report: "Report", grids: Sequence[Grid]) -> None:
        """Show the report, in JSON or as `grids`, and write it where it was asked for.

        It is shown first: what took minutes to measure is not lost with a full disk.
        """
        self._finish(report, grids, condition_rows(report))

    def finish_serve(self, report: "ServeReport", grids: Sequence[Grid]) -> None:
        """The same for a report on no model."""
        self._finish(report, grids, machine_rows(report.conditions))

    def _finish(
        self, report: "Report | ServeReport", grids: Sequence[Grid], conditions: "list[Row]"
    ) -> None:
        for warning in report.warnings:
            self.screen.warn(warning)
        if self.as_json:
            self.screen.write_json(report.to_json())
        else:
            for grid in grids:
                print_grid(sys.stdout, grid)
            self.screen.table("Conditions", conditions, sys.stdout)
        if self.out is not None:
            from mtplx.contracts.files import write_json

            write_json(self.out, report.to_json())


def open_frame(
    model: str | None, profile: str | None, out: Path | None, *, as_json: bool, quiet: bool
) -> Frame:
    """Settle model and options.

    Raises:
        UsageError: a setting is wrong, or the report could not be written to `out`.
        MTPLXError: there is no such model.
    """
    from mtplx.config import Config
    from mtplx.runtime.bench.part import Options

    out = None if out is None else out.expanduser()
    if out is not None:
        _require_writable(out)
    config = Config.load(model=model, profile=profile)
    screen = Screen(quiet=quiet or as_json)
    options = Options(
        profile=config.profile,
        acceptance=config.acceptance,
        prefill_chunk=config.prefill_chunk,
        kv_bits=config.kv_cache_bits,
    )
    return Frame(screen, choose_folder(screen, config.model), options, as_json, out)


def _require_writable(out: Path) -> None:
    """Refuse a file that could not be written before measuring rather than after it."""
    folder = out.parent
    if not folder.is_dir():
        raise UsageError(f"--out: there is no folder {folder}", hint="Make it first.")
    if out.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(
            f"--out: {out} cannot be written", hint="Choose a file in a folder of yours."
        )
