"""`mtplx forge cancel`: stop a running build; it can be resumed."""

from typing import Annotated

import typer

from mtplx.commands.forge.flags import JsonOption
from mtplx.screen import Screen


def cancel(
    run_id: Annotated[str, typer.Argument(help="The id of the run: the name of its run folder.")],
    as_json: JsonOption = False,
) -> None:
    """Stop a running build at its next step; `forge build --resume` goes on with it.

    Example: mtplx forge cancel run-qwen3_5-mtplx-optimized-speed
    """
    from mtplx.forge.cancel import cancel as cancel_run

    folder = cancel_run(run_id)
    screen = Screen()
    if as_json:
        screen.write_json({"run_id": run_id, "path": str(folder), "cancelled": True})
    else:
        screen.write(f"{run_id} in {folder} stops at its next step.\n")
