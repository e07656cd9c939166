"""`mtplx bench serve`: what the server takes."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtplx.commands.bench.flags import (
    JsonOption,
    ModelOption,
    OutOption,
    QuietOption,
    RepeatsOption,
    parse_numbers,
)
from mtplx.commands.bench.frame import open_frame
from mtplx.commands.bench.view import Grid, milliseconds, span

if TYPE_CHECKING:
    from mtplx.runtime.bench.report import ServeReport


def serve(
    model: ModelOption = None,
    clients: Annotated[
        str, typer.Option(metavar="LIST", help="Clients at once, like 1,4,16.")
    ] = "1,4,16",
    requests: Annotated[int, typer.Option(help="Requests of each client in a load.")] = 4,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a streamed answer.")] = 1000,
    burst: Annotated[
        int, typer.Option(help="Tokens the engine gives at once; with MTP there are several.")
    ] = 1,
    api: Annotated[
        Literal["chat", "completions", "responses", "messages"], typer.Option(help="Endpoint.")
    ] = "chat",
    repeats: RepeatsOption = 7,
    as_json: JsonOption = False,
    out: OutOption = None,
    quiet: QuietOption = False,
) -> None:
    """Measure the server itself, in front of an engine that costs nothing.

    No model is loaded: the engine plays back text, with the tokenizer and the chat template of --model. Server and
    clients are processes of their own on this machine. Requests are answered one after the other, as `mtplx serve`
    does by default, so a client's speed is that of its stream while it runs.

    Example: mtplx bench serve

    Example: mtplx bench serve --api responses --clients 1,8 --burst 3 --json
    """
    from mtplx.runtime.bench.serve import ServeSettings, measure_serve

    settings = ServeSettings(
        clients=parse_numbers("clients", clients),
        requests=requests,
        max_tokens=max_tokens,
        burst=burst,
        api=api,
        repeats=repeats,
    )
    frame = open_frame(model, None, out, as_json=as_json, quiet=quiet)
    with frame.screen.progress() as progress:
        report = measure_serve(frame.folder, settings, progress.update)
    frame.finish_serve(report, [serve_grid(report)])


def serve_grid(report: "ServeReport") -> Grid:
    """A line for each count of clients."""
    title = (
        f"Server of /{report.api} in front of an engine without cost: answers of {report.max_tokens} "
        f"tokens, {report.burst} at once"
    )
    headings = (
        "clients",
        "tok/s, slowest stream",
        "tok/s, all",
        "first byte, ms",
        "95 % below, ms",
        "requests/s, not streamed",
        "server's CPU s a 1000 tokens",
        "clients'",
    )
    lines = [
        (
            str(row.clients),
            span(row.client_tok_s, 0),
            span(row.total_tok_s, 0),
            milliseconds(row.first_byte_s),
            f"{row.first_byte_p95_s * 1e3:.1f}",
            span(row.requests_s, 0),
            f"{row.server_cpu_s_per_1000_tokens:.3f}",
            f"{row.clients_cpu_s_per_1000_tokens:.3f}",
        )
        for row in report.rows
    ]
    return Grid(title, headings, lines)
