"""`mtplx forge discover`: checkpoints on the hub that may be worth forging."""

from typing import Annotated

import typer

from mtplx.commands.forge.flags import JsonOption
from mtplx.screen import Screen

_COLUMNS = "{:<52} {:<12} {:<5} {:>10} {:>6}  {}"


def discover(
    query: Annotated[
        str | None,
        typer.Option(help="What the name contains; the families that run with MTP if not given."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Most rows to show.")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Rows to leave out at the start.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Search the hub, most downloaded first.

    Whether there is a head is guessed from the description; `mtplx forge probe` knows.

    Example: mtplx forge discover --query qwen3.5 --limit 10
    """
    from mtplx.forge.hub.search import discover as search

    found = search(query, limit=limit, offset=offset)
    screen = Screen()
    if as_json:
        screen.write_json({"query": query, "rows": [row.to_json() for row in found]})
        return
    if not found:
        screen.note("nothing found")
        return
    print(_COLUMNS.format("repository", "family", "head", "downloads", "likes", "why"))
    for row in found:
        head = {True: "yes", False: "no", None: "?"}[row.has_mtp]
        family = row.family or "-"
        print(_COLUMNS.format(row.repo, family, head, row.downloads, row.likes, row.why))
