"""`mtplx run`: answer one prompt."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtplx.answer import show_answer
from mtplx.commands.flags import GenerationFlags, with_generation_flags
from mtplx.commands.prompt import read_prompt
from mtplx.opening import open_model
from mtplx.render import device_row, generation_rows
from mtplx.screen import Screen
from mtplx.tuned import use_tuning

if TYPE_CHECKING:
    from mtplx.runtime.decode.result import Generation
    from mtplx.runtime.model import Model


@with_generation_flags
def run(
    context: typer.Context,
    flags: GenerationFlags,
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; `-` or nothing reads standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the prompt from this file.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as it is, without chat template.")
    ] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Show speed and acceptance.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no notes and no progress.")] = False,
) -> None:
    """Answer one prompt; the text streams to standard output as it is made."""
    text = read_prompt(prompt, file, raw=raw)
    config = flags.config()
    screen = Screen(quiet=quiet or as_json)
    flags.tell_overridden(config, screen)
    model = open_model(
        context.obj,
        screen,
        config.model,
        mtp=flags.mtp,
        kv_bits=config.kv_cache_bits,
        verify_hashes=flags.verify_hashes,
    )
    options = {**flags.options(config, has_head=model.has_head), "raw": raw}
    tuning = use_tuning(model, screen, chosen=flags.depth_choice(config), mtp=flags.mtp)
    options |= tuning.options
    if as_json or stats:
        model.costs()
    if as_json:
        screen.write_json({**model.generate(text, **options).to_json(), "tuning": tuning.report})
        return
    with screen.progress() as progress:
        events = model.stream(text, on_prefill=progress.prefill, **options)
        generation = show_answer(events, screen, progress)
    if generation is not None:
        _show_report(generation, model, screen, stats=stats)


def _show_report(generation: "Generation", model: "Model", screen: Screen, *, stats: bool) -> None:
    for warning in generation.warnings:
        if warning not in model.warnings:
            screen.warn(warning)
    if stats:
        rows = [*generation_rows(generation.to_json()), device_row(model.device)]
        screen.table("Generation", rows)
