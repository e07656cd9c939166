"""Flags that several commands of `mtplx forge` have, written once."""

from pathlib import Path
from typing import Annotated

import typer

SourceArgument = Annotated[str, typer.Argument(help="A model folder, or ORG/NAME on the hub.")]
RecipeOption = Annotated[
    str, typer.Option(help="A recipe's name, a YAML or JSON file, or JSON text.")
]
RevisionOption = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub source.")]
AllowDegradedOption = Annotated[
    bool,
    typer.Option(
        "--allow-degraded-mtp", help="Allow recipes that quantise the head like the body."
    ),
]
CalibrationTextOption = Annotated[
    Path | None, typer.Option(help="Calibrate on this text instead of the one that ships.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Start without asking.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no notes and no progress.")]
