"""`mtplx tune`: find the depth that is fastest on this machine."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.commands.tune_view import TuneView, result_rows
from mtplx.contracts.errors import InvalidRequestError, MTPLXError
from mtplx.opening import choose_folder
from mtplx.render import print_error
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.runtime.tuning.record import Depth
    from mtplx.runtime.tuning.tune import TuneResult

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def tune(
    model: Annotated[
        str | None,
        typer.Option(help="Model folder or name; the configured or the bundled one if none."),
    ] = None,
    depths: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Depths and ranges to measure, separated by commas; `auto` is the adaptive "
            "policy. Plain decoding (0) is always measured.",
        ),
    ] = "0-6,auto",
    domains: Annotated[
        str, typer.Option(metavar="LIST", help="Kinds of text to measure on.")
    ] = "code,prose,chat",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for all of it, like 90s, 2m or 1h.")
    ] = "60s",
    kv_bits: Annotated[
        str | None,
        typer.Option(
            metavar="N|off", help="Tune for a KV cache quantised to this many bits, as run has it."
        ),
    ] = None,
    retune: Annotated[
        bool, typer.Option("--retune", help="Measure again where a result is known.")
    ] = False,
    no_save: Annotated[
        bool, typer.Option("--no-save", help="Show the result and do not keep it.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw speed, acceptance and costs into a .png or .svg file (needs mtplx[plot]).",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no notes and no progress.")] = False,
) -> None:
    """Measure plain decoding and every depth in turns, and keep the fastest for `run` and `chat`.

    A depth is kept if it is at least 5 % faster than plain decoding and the whole interval of its
    gain lies above 1; otherwise plain decoding is. Of depths within 3 % of the fastest, the
    shallowest. The result is kept for this model, machine, versions and kv_bits, and is not used
    where one of them changes. Measuring ends early when nothing is left to decide.

    Example: mtplx tune --model DIR

    Example: mtplx tune --model DIR --depths 1-3,auto --budget 2m --retune --plot tune.png

    Example: mtplx tune --model DIR --json | jq .depth
    """
    # The time for it includes importing mlx.
    started = time.monotonic()
    from mtplx.config import Config
    from mtplx.runtime.tuning.plot import require_plot, write_plot
    from mtplx.runtime.tuning.store import TuningStore
    from mtplx.runtime.tuning.tune import TuneSettings
    from mtplx.runtime.tuning.tune import tune as find_depth

    config = Config.load(model=model, kv_bits=kv_bits)
    settings = TuneSettings(
        depths=parse_depths(depths),
        domains=tuple(dict.fromkeys(name.strip() for name in domains.split(","))),
        budget_s=parse_budget(budget),
        kv_bits=config.kv_cache_bits,
        retune=retune,
        save=not no_save,
    )
    if plot is not None:
        require_plot(plot)
    screen = Screen(quiet=quiet or as_json)
    folder = choose_folder(screen, config.model)
    with TuneView(screen) as view:
        result = find_depth(
            folder,
            settings,
            TuningStore.of_this_user(),
            started=started,
            on_progress=view.progress,
            on_change=view.show,
        )
    plot_error = None
    if plot is not None:
        try:
            write_plot(result.record, plot)
        except MTPLXError as error:
            # What was measured is shown all the same.
            plot_error = error
    _show(result, plot_error, screen, as_json=as_json)
    if (failure := result.save_error or plot_error) is not None:
        raise typer.Exit(failure.exit_code)


def _show(
    result: "TuneResult", plot_error: MTPLXError | None, screen: Screen, *, as_json: bool
) -> None:
    for warning in result.warnings:
        screen.warn(warning)
    if as_json:
        told = None if plot_error is None else plot_error.to_json()
        screen.write_json({**result.to_json(), "plot_error": told})
        return
    screen.table(f"Tuning of {result.record.model}", result_rows(result), sys.stdout)
    for failure in (result.save_error, plot_error):
        # Quiet does not hide what gives the exit code.
        if failure is not None:
            print_error(sys.stderr, failure)


def parse_depths(text: str) -> tuple["Depth", ...]:
    """Depths of a list like `0-3,5,auto` without 0. Raises InvalidRequestError."""
    found: list[Depth] = []
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        if item.strip() == "auto":
            found.append("auto")
        elif (
            _is_depth(first) and (not dash or _is_depth(last)) and int(first) <= int(last or first)
        ):
            found += range(int(first), int(last or first) + 1)
        else:
            raise InvalidRequestError(
                f"--depths: expected depths from 0 to 8, ranges like 1-4 or auto, separated by "
                f"commas, found {item!r}",
                key="depths",
            )
    return tuple(dict.fromkeys(depth for depth in found if depth != 0))


def _is_depth(text: str) -> bool:
    return len(text) == 1 and text in "012345678"


def parse_budget(text: str) -> float:
    """Seconds of a time like `90`, `90s`, `1.5m` or `1h`. Raises InvalidRequestError."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "s")
    try:
        return float(number) * _UNITS[unit]
    except ValueError as error:
        raise InvalidRequestError(
            f"--budget: expected a time like 90s, 2m or 1h, found {text!r}", key="budget"
        ) from error
