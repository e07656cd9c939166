"""`mtplx bench`: honest comparisons on this machine."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mtplx.contracts.errors import InvalidRequestError
from mtplx.opening import choose_folder
from mtplx.screen import Screen

bench = typer.Typer(help="Measure speed in paired, interleaved runs.", no_args_is_help=True)

_COLUMNS = "{:<10} {:>9} {:>17} {:>12} {:>12}  {}"


@bench.callback()
def _group() -> None:
    """Keeps `speed` a subcommand while it is the only one."""


@bench.command()
def speed(
    model: Annotated[
        str | None, typer.Option(help="Model folder; the bundled demo model if none is named.")
    ] = None,
    depths: Annotated[
        str,
        typer.Option(help="Depths to measure, separated by commas; `auto` is the adaptive one."),
    ] = "1,2,3,4,auto",
    compare: Annotated[
        Literal["mlx-lm"] | None, typer.Option(help="Measure stock mlx-lm on the same folder too.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved repeats after a warm-up.")] = 5,
    max_tokens: Annotated[int, typer.Option(min=2, help="Tokens an answer.")] = 128,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the JSON object to this file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no notes and no progress.")] = False,
) -> None:
    """Decode three prompts plainly, with MTP at each depth and with stock mlx-lm, in turns.

    Example: mtplx bench speed --model DIR --depths 1,3 --compare mlx-lm
    """
    from mtplx.contracts.files import write_json
    from mtplx.runtime.tuning.compare import compare_speed

    wanted = _parse_depths(depths)
    screen = Screen(quiet=quiet or as_json)
    folder = choose_folder(screen, model)
    with screen.progress() as progress:
        report = compare_speed(
            folder,
            depths=wanted,
            with_stock=compare is not None,
            repeats=repeats,
            max_tokens=max_tokens,
            on_progress=progress.update,
        )
    for warning in report["conditions"]["own"]["warnings"]:
        screen.warn(warning)
    if out is not None:
        write_json(out, report)
    if as_json:
        screen.write_json(report)
    else:
        _print_table(report)


def _parse_depths(text: str) -> list[int | Literal["auto"]]:
    found: list[int | Literal["auto"]] = []
    for item in text.split(","):
        item = item.strip()
        if item == "auto":
            found.append("auto")
        elif item.isdecimal() and 1 <= int(item) <= 8:
            found.append(int(item))
        else:
            raise InvalidRequestError(
                f"--depths: expected numbers from 1 to 8 or auto, separated by commas, found {item!r}",
                key="depths",
            )
    return found


def _print_table(report: dict[str, Any]) -> None:
    print(_COLUMNS.format("system", "tok/s", "min to max", "over plain", "over mlx-lm", "text"))
    for row in report["systems"]:
        tok_s, over = row["decode_tok_s"], row["over_mlx_lm"]
        print(
            _COLUMNS.format(
                row["name"],
                f"{tok_s['median']:.1f}",
                f"{tok_s['min']:.1f} to {tok_s['max']:.1f}",
                f"{row['over_plain']['median']:.2f}x",
                "-" if over is None else f"{over['median']:.2f}x",
                "as plain" if all(row["text_equals_plain"].values()) else "differs",
            )
        )
    for name, reason in report["refused"].items():
        print(f"{name} refused the model: {reason}")
