"""`mtplx forge brand`: give a model folder a contract without converting it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mtplx.commands.forge.evidence import contract_rows
from mtplx.commands.forge.flags import CalibrationTextOption, JsonOption, QuietOption
from mtplx.render import Row
from mtplx.screen import Screen


def brand(
    path: Annotated[Path, typer.Argument(help="A model folder with an MTP head.")],
    calibration_text: CalibrationTextOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Calibrate the head of a folder as it is, and write the contract with the content's hashes.

    The artifact is unverified until `mtplx forge verify PATH --stamp` proves it.

    Example: mtplx forge brand models/my-mlx-model
    """
    from mtplx.forge.branding import brand_folder

    screen = Screen(quiet=quiet or as_json)
    folder = path.expanduser()
    with screen.progress() as progress:
        contract = brand_folder(
            folder, calibration_text=calibration_text, on_progress=progress.update
        )
    if as_json:
        screen.write_json(contract.to_json())
    else:
        rows = [Row("path", str(folder)), *contract_rows(contract)]
        screen.table(folder.resolve().name, rows, sys.stdout)
