"""`mtplx forge discover`: checkpoints on the hub that may be worth forging."""

from typing import Annotated

import typer

from mtplx.render import Row
from mtplx.screen import Screen


def discover(
    query: Annotated[
        str | None, typer.Option(help="Words to search for; the runnable families if not given.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Most rows to show.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
) -> None:
    """Search the hub; whether a head is really there is for `mtplx forge probe` to say.

    Example: mtplx forge discover --query qwen3.5 --limit 10
    """
