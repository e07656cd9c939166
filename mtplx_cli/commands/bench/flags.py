"""Flags that the subcommands of `mtplx bench` share, and what they hold."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtplx.commands.forge.flags import JsonOption, QuietOption
from mtplx.contracts.errors import InvalidRequestError

if TYPE_CHECKING:
    from mtplx.runtime.bench.speed import Depth

__all__ = [
    "CompareOption",
    "JsonOption",
    "MaxTokensOption",
    "ModelOption",
    "OutOption",
    "ProfileOption",
    "PromptsOption",
    "QuietOption",
    "RepeatsOption",
    "SeedOption",
    "TopKOption",
    "TopPOption",
    "parse_bits",
    "parse_depths",
    "parse_numbers",
]


def _complete_profile(incomplete: str) -> list[str]:
    from mtplx.profiles import PROFILES

    return [name for name in PROFILES if name.startswith(incomplete)]


ModelOption = Annotated[
    str | None,
    typer.Option(help="Model folder or name; the configured or the bundled one if none."),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        help="Measure with the acceptance, prefill_chunk and kv_bits of a named set of options; "
        "`mtplx config profiles` explains them.",
        autocompletion=_complete_profile,
    ),
]
CompareOption = Annotated[
    Literal["mlx-lm"] | None, typer.Option(help="Measure stock mlx-lm on the same folder too.")
]
OutOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the JSON object to this file too.")
]
RepeatsOption = Annotated[int, typer.Option(min=1, help="Interleaved repeats after a warm-up.")]
MaxTokensOption = Annotated[int, typer.Option(min=2, help="Tokens an answer.")]
PromptsOption = Annotated[int, typer.Option(help="Prompts of each domain, 1 to 10.")]
TopPOption = Annotated[float, typer.Option(help="Nucleus; 1 is off.")]
TopKOption = Annotated[int, typer.Option(help="Most likely tokens; 0 is off.")]
SeedOption = Annotated[int, typer.Option(help="Seed of sampling.")]


def parse_numbers(flag: str, text: str) -> tuple[int, ...]:
    """Whole numbers above 0 of a list like `128,1024`. Raises InvalidRequestError."""
    items = [item.strip() for item in text.split(",")]
    for item in items:
        if not (item.isascii() and item.isdecimal() and len(item) < 10 and int(item) > 0):
            raise InvalidRequestError(
                f"--{flag}: expected whole numbers above 0, separated by commas, found {item!r}",
                key=flag,
            )
    return tuple(dict.fromkeys(map(int, items)))


def parse_depths(text: str) -> tuple["Depth", ...]:
    """Depths of a list like `1,3,auto`. Raises InvalidRequestError."""
    found: list[Depth] = []
    for item in (item.strip() for item in text.split(",")):
        if item == "auto":
            found.append("auto")
        elif len(item) == 1 and item in "12345678":
            found.append(int(item))
        else:
            raise InvalidRequestError(
                f"--depths: expected numbers from 1 to 8 or auto, separated by commas, found {item!r}",
                key="depths",
                hint="Plain decoding is always measured.",
            )
    return tuple(dict.fromkeys(found))


def parse_bits(text: str) -> tuple[int | None, ...]:
    """Bits of a list like `off,8,4`; None is off. Raises InvalidRequestError."""
    found: list[int | None] = []
    for item in (item.strip() for item in text.split(",")):
        if item == "off":
            found.append(None)
        elif len(item) == 1 and item in "234568":
            found.append(int(item))
        else:
            raise InvalidRequestError(
                f"--kv-bits: expected 2, 3, 4, 5, 6, 8 or off, separated by commas, found {item!r}",
                key="kv_bits",
            )
    return tuple(dict.fromkeys(found))
