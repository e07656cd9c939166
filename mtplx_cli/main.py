"""The entry point: runs a command and turns whatever happens into one message and an exit code."""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import typer

from mtplx.app import app
from mtplx.contracts.errors import (
    INTERRUPTED_EXIT_CODE,
    InternalError,
    MTPLXError,
    UsageError,
)
from mtplx.opening import Loader
from mtplx.render import print_error
from mtplx.screen import Screen

# Commands that load a model.
_STARTS = frozenset({"run", "chat", "bench", "tune", "serve"})


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character the terminal cannot show must not end an answer.
            stream.reconfigure(errors="replace")
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str], *, load: Loader | None = None) -> int:
    """Run one command line and return its exit code; `load` opens models in place of ours."""
    wants_json = "--json" in arguments
    try:
        code = app(args=list(arguments), prog_name="mtplx", standalone_mode=False, obj=load)
    except KeyboardInterrupt:
        code = INTERRUPTED_EXIT_CODE
    except Exception as error:  # the outermost frame: nothing above could report it
        if os.environ.get("MTPLX_DEBUG") == "1":
            traceback.print_exc()
        failure = _as_ours(error)
        _remember(arguments, failure)
        return _report(failure, wants_json=wants_json)
    if code == INTERRUPTED_EXIT_CODE:
        return _report_interrupt(wants_json=wants_json)
    code = code if isinstance(code, int) else 0
    if code == 0:
        _remember(arguments, None)
    return code


def _remember(arguments: Sequence[str], failure: MTPLXError | None) -> None:
    """Keep for `mtplx doctor` how the start of a model ended."""
    if not arguments or arguments[0] not in _STARTS or "--help" in arguments:
        return
    from mtplx.runtime.diagnostics.last_failure import forget_failure, record_failure

    # Where the record cannot be kept, the command's own outcome is still what matters, and
    # doctor has a check for the folder.
    with suppress(MTPLXError, OSError):
        if failure is None:
            forget_failure(arguments[0])
        else:
            record_failure(arguments[0], arguments[1:], failure)


def _as_ours(error: Exception) -> MTPLXError:
    if isinstance(error, MTPLXError):
        return error
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "mtplx"
        # typer's message is empty where it has already shown the help of a group.
        message = error.format_message() or "a subcommand is missing"
        return UsageError(message, hint=f"See `{command} --help`.")
    return InternalError(
        f"{type(error).__name__}: {error}",
        hint="This is a bug in mtplx. Run again with MTPLX_DEBUG=1 and report the traceback.",
    )


def _report(error: MTPLXError, *, wants_json: bool) -> int:
    if wants_json:
        Screen().write_json({"error": error.to_json()})
    else:
        print_error(sys.stderr, error)
    return error.exit_code


def _report_interrupt(*, wants_json: bool) -> int:
    if wants_json:
        row = {"code": "interrupted", "exit_code": INTERRUPTED_EXIT_CODE}
        Screen().write_json({"error": row})
    else:
        print("\ninterrupted", file=sys.stderr)
    return INTERRUPTED_EXIT_CODE
