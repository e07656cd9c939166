"""`mtplx stop`: end a server of this user."""

from typing import Annotated

import typer

from mtplx.contracts.errors import ServerError, UsageError
from mtplx.screen import Screen


def stop(
    port: Annotated[
        int | None, typer.Option(help="Port of the server; the only one if not given.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="How long to wait for its end.")
    ] = 30.0,
    force: Annotated[
        bool, typer.Option("--force", help="Kill it where it has not ended in that time.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no notes.")] = False,
) -> None:
    """Let a server end its answers and stop.

    Exit code: 14 when no server runs, or it does not end in time.

    Example: mtplx stop --port 8001
    """
    import psutil

    from mtplx.runtime.server.state_file import running_servers, state_file

    servers = running_servers()
    if not servers or (port is not None and port not in servers):
        where = "here" if port is None else f"on port {port}"
        raise ServerError(
            f"no server of mtplx runs {where}.", hint="`mtplx status` lists those that do."
        )
    if port is None and len(servers) > 1:
        known = ", ".join(str(number) for number in servers)
        raise UsageError(
            f"servers run on the ports {known}.", hint="Name one: mtplx stop --port PORT"
        )
    number = port if port is not None else next(iter(servers))
    process = servers[number].process()
    was_killed = False
    if process is not None:
        process.terminate()
        try:
            process.wait(timeout)
        except psutil.TimeoutExpired as error:
            if not force:
                raise ServerError(
                    f"the server on port {number} (process {process.pid}) has not ended after "
                    f"{timeout:g} s.",
                    hint=f"mtplx stop --port {number} --force",
                ) from error
            process.kill()
            process.wait()
            state_file(number).unlink(missing_ok=True)
            was_killed = True
    screen = Screen(quiet=quiet or as_json)
    if as_json:
        screen.write_json({"port": number, "pid": servers[number].pid, "killed": was_killed})
    else:
        screen.note(f"the server on port {number} was {'killed' if was_killed else 'stopped'}")
