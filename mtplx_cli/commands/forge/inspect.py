"""`mtplx forge inspect`: a folder, and what its contract says was measured."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mtplx.commands.forge.evidence import contract_rows
from mtplx.commands.forge.flags import JsonOption
from mtplx.commands.inspect import inspection_rows
from mtplx.render import print_error
from mtplx.screen import Screen


def inspect(
    path: Annotated[Path, typer.Argument(help="An artifact, or any model folder.")],
    verify_hashes: Annotated[
        bool, typer.Option("--verify-hashes", help="Compare every byte with the contract.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what an artifact is, how its head is wired, and what was proven and measured of it.

    Example: mtplx forge inspect models/qwen3_5-mtplx-optimized-speed --verify-hashes
    """
    from mtplx.contracts.inspection import inspect_folder

    found = inspect_folder(path.expanduser(), verify_hashes=verify_hashes)
    contract = found.contract
    screen = Screen()
    if as_json:
        screen.write_json({**found.to_json(), "runtime_contract": contract and contract.to_json()})
    else:
        rows = inspection_rows(found) + (contract_rows(contract) if contract else [])
        screen.table(found.path.name, rows, sys.stdout)
        if found.error is not None:
            print_error(sys.stderr, found.error)
    raise typer.Exit(found.exit_code)
