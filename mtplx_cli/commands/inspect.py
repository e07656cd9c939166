"""`mtplx inspect`: say what a model folder is, from its headers only."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.render import Row, print_error
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.contracts.inspection import Inspection


def inspect(
    path: Annotated[
        str, typer.Argument(help="A model folder, or a name that `mtplx models` lists.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    verify_hashes: Annotated[
        bool,
        typer.Option(
            "--verify-hashes", help="Compare every byte with the contract, not sizes and headers."
        ),
    ] = False,
) -> None:
    """Say what a model folder is and whether it runs with MTP; reads headers, loads nothing."""
    from mtplx.contracts.inspection import inspect_folder
    from mtplx.library import resolve_model

    screen = Screen(quiet=as_json)
    with screen.progress() as progress:
        inspection = inspect_folder(
            resolve_model(path),
            verify_hashes=verify_hashes,
            on_progress=lambda done, total: progress.update("checking files", done / max(total, 1)),
        )
    if as_json:
        screen.write_json(inspection.to_json())
    else:
        screen.table(inspection.path.name, inspection_rows(inspection), sys.stdout)
        if inspection.error is not None:
            print_error(sys.stderr, inspection.error)
    raise typer.Exit(inspection.exit_code)


def inspection_rows(inspection: "Inspection") -> list[Row]:
    """The facts of an inspection for reading; what does not apply is left out."""
    family = inspection.family
    rows = [
        Row("path", str(inspection.path)),
        Row("tier", str(inspection.tier)),
        *(Row("reason", reason) for reason in inspection.reasons),
        Row("family", family.title if family is not None else "unknown"),
        Row("model type", str(inspection.config.get("model_type", "-"))),
        Row("MTP head", _head(inspection)),
        Row("quantisation", _quantization(inspection)),
        Row("norm encoding", inspection.norm_encoding or "-"),
        Row("context", f"{inspection.context_length or '-'} tokens"),
        Row("end tokens", ", ".join(map(str, inspection.eos_token_ids)) or "none"),
        Row("tokenizer", "yes" if inspection.has_tokenizer else "no"),
        Row("chat template", "yes" if inspection.has_chat_template else "no"),
        Row("weights", f"{inspection.size_bytes / 1e6:.1f} MB"),
    ]
    return rows + [Row("warning", warning) for warning in inspection.warnings]


def _head(inspection: "Inspection") -> str:
    head = inspection.head
    if not head.found:
        return head.state
    size = f"{head.nbytes / 1e6:.1f} MB {'/'.join(head.dtypes)}"
    return f"{head.state}, {head.found} layer(s), {size}, at {head.prefix}"


def _quantization(inspection: "Inspection") -> str:
    settings = inspection.quantization
    if not settings:
        return "none"
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    return ", ".join(f"{key} {value}" for key, value in plain.items())
