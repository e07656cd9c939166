"""`mtplx serve`: answer requests of the OpenAI and Anthropic APIs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

_NETWORK = "Network"
_LIMITS = "Limits"
_DECODING = "Decoding"


def serve(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(help="Model folder, or a name that `mtplx models` lists; the demo if none."),
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option(help="One more name that requests may call the model; may be repeated."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="A named set of options; `mtplx config profiles`.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on (127.0.0.1, which only this machine can reach).",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port (8000); 0 is any free one.", rich_help_panel=_NETWORK),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File of lines `name: key`, readable for you alone; requests need one of the "
            "keys then.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="One more name by which clients may call this server; may be repeated.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Let web pages of this origin use the server; may be repeated.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    context_window: Annotated[
        int | None,
        typer.Option(
            help="Most tokens of prompt and answer together; the model's own if not given.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help="Most tokens of an answer where a request does not say (4096).",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    scheduler_mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="How requests share the model: serial (one after the other), hyper (one, others "
            "are refused), solo_mtp (one, nothing kept).",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    queue_size: Annotated[
        int,
        typer.Option(min=0, help="Requests that may wait in serial mode.", rich_help_panel=_LIMITS),
    ] = 32,
    deadline: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Most time for an answer, waiting included; none if not given.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    watchdog: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            help="A step that takes longer makes /health/ready fail.",
            rich_help_panel=_LIMITS,
        ),
    ] = 120.0,
    stop_grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="What answers get to end in when the server stops.",
            rich_help_panel=_LIMITS,
        ),
    ] = 10.0,
    prefix_cache_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Memory for prompts that were read, like 512M; 0 keeps none. Never more than "
            "half of what caches may take.",
            rich_help_panel=_LIMITS,
        ),
    ] = "4G",
    max_body_bytes: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Largest body of a request.", rich_help_panel=_LIMITS),
    ] = "16M",
    depth: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto", help="Tokens drafted a round, 0 to 8.", rich_help_panel=_DECODING
        ),
    ] = None,
    mtp: Annotated[
        bool | None,
        typer.Option(
            "--mtp/--no-mtp",
            help="Insist on, or do without, the model's MTP head.",
            rich_help_panel=_DECODING,
        ),
    ] = None,
    acceptance: Annotated[
        Literal["coupled", "rejection", "block"] | None,
        typer.Option(help="Law by which drafts are accepted.", rich_help_panel=_DECODING),
    ] = None,
    prefill_chunk: Annotated[
        int | None,
        typer.Option(help="Prompt tokens read at a time (512).", rich_help_panel=_DECODING),
    ] = None,
    kv_bits: Annotated[
        str | None,
        typer.Option(
            metavar="N|off",
            help="Quantise the KV cache to this many bits.",
            rich_help_panel=_DECODING,
        ),
    ] = None,
    verify_hashes: Annotated[
        bool,
        typer.Option(
            "--verify-hashes", help="Compare every byte of the model with its contract first."
        ),
    ] = False,
    log_prompts: Annotated[
        bool,
        typer.Option(
            "--log-prompts", help="Write the bodies of requests to the log, prompts and all."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when ready, and no log.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no notes, no progress and no line a request.")
    ] = False,
) -> None:
    """Serve a model over HTTP until Ctrl-C, SIGTERM or `mtplx stop`.

    The first of these lets answers end within --stop-grace, the second ends at once.
    An address that other machines can reach needs --api-key-file.

    Example: mtplx serve --model DIR

    Example: mtplx serve --model DIR --host 0.0.0.0 --api-key-file mtplx-keys
    """
    from mtplx.serving import ServeRequest, Serving

    settings = {
        "model": model,
        "profile": profile,
        "host": host,
        "port": port,
        "api_key_file": None if api_key_file is None else str(api_key_file),
        "context_window": context_window,
        "max_tokens": max_tokens,
        "scheduler_mode": scheduler_mode,
        "depth": depth,
        "acceptance": acceptance,
        "prefill_chunk": prefill_chunk,
        "kv_bits": kv_bits,
    }
    request = ServeRequest(
        settings=settings,
        aliases=tuple(alias or ()),
        allowed_hosts=tuple(allowed_host or ()),
        cors_origins=tuple(cors_origin or ()),
        queue_size=queue_size,
        deadline_s=deadline,
        watchdog_s=watchdog,
        stop_grace_s=stop_grace,
        prefix_cache=prefix_cache_bytes,
        max_body=max_body_bytes,
        mtp=mtp,
        verify_hashes=verify_hashes,
        log_prompts=log_prompts,
        as_json=as_json,
        quiet=quiet,
    )
    Serving(request, context.obj).run()
