"""`mtplx status`: which servers run, and whether they serve."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mtplx.contracts.errors import ServerError
from mtplx.render import Row
from mtplx.screen import Screen


def status(
    url: Annotated[
        str | None,
        typer.Option(help="Address of the server; those of this user on this machine if none."),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File whose first key is sent, as `mtplx serve` reads it."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no notes.")] = False,
) -> None:
    """Ask servers what they do.

    Exit code: 0 when all of them serve, 14 when one does not answer or serve, or none runs.

    Example: mtplx status

    Example: mtplx status --url http://192.168.1.20:8000 --api-key-file mtplx-keys
    """
    from mtplx.asking import ask_server, configured_key
    from mtplx.runtime.server.state_file import running_servers

    screen = Screen(quiet=quiet or as_json)
    states = {} if url is not None else {s.url: s for s in running_servers().values()}
    urls = list(states) if url is None else [url]
    if not urls:
        raise ServerError(
            "no server of mtplx runs here.",
            hint="Start one with `mtplx serve`, or name one with --url.",
        )
    key = configured_key(api_key_file)
    found: list[dict[str, Any]] = []
    for address in urls:
        state = states.get(address)
        known = {} if state is None else {"pid": state.pid, "model": state.model}
        found.append({"url": address, **known, **ask_server(address, key)})
    if as_json:
        screen.write_json({"servers": found})
    else:
        for server in found:
            screen.table(server["url"], _rows(server), sys.stdout)
    if not all(server["status"] == "ready" for server in found):
        raise typer.Exit(ServerError.exit_code)


def _rows(server: dict[str, Any]) -> list[Row]:
    """What a person wants to know; a server with keys tells little without one."""
    rows = [Row("status", server["status"] + (f": {server['reason']}" if server["reason"] else ""))]
    if "pid" in server:
        rows.append(Row("process", str(server["pid"])))
    names = {
        "model": "model",
        "tier": "tier",
        "depth": "depth",
        "scheduler_mode": "scheduler",
        "scheduler_policy": "",
        "active_requests": "running",
        "queued_requests": "waiting",
        "prompt_tokens": "prompt tokens",
        "cached_tokens": "of these cached",
        "completion_tokens": "answer tokens",
    }
    rows += [Row(name, str(server[key])) for key, name in names.items() if key in server]
    return rows + [Row("warning", text) for text in server.get("warnings", ())]
