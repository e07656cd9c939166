"""`mtplx forge verify`: prove an artifact exact, and measure whether its head pays."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtplx.commands.forge.flags import JsonOption, QuietOption
from mtplx.contracts.errors import InvalidRequestError, UsageError
from mtplx.render import Row
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.forge.verify.replay import Replay
    from mtplx.forge.verify.settings import VerifySettings
    from mtplx.forge.verify.speed import SpeedRow
    from mtplx.forge.verify.verify import Verification


def verify(
    path: Annotated[Path, typer.Argument(help="An artifact, or any model folder with a head.")],
    stamp: Annotated[
        bool, typer.Option("--stamp", help="Put the result into the artifact's contract.")
    ] = False,
    depths: Annotated[
        str | None,
        typer.Option(
            help="Depths to test, separated by commas, each from 1 to 8.", show_default="1,2,3"
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Interleaved repeats of each speed after a warm-up.",
            show_default="as many as a win needs, at least 7",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens an answer when timing.", show_default="48")
    ] = None,
    speed: Annotated[
        bool, typer.Option("--speed/--no-speed", help="Measure speed, or exactness alone.")
    ] = True,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Repeat what the contract records, and compare the results."),
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare text with MTP on and off token by token, test the acceptance laws, and time each depth.

    Greedy and seeded answers must be equal at every depth; places where two tokens are as likely as rounding can
    tell are counted as ties. A depth wins when it is 5 % faster and the whole interval is above plain decoding.
    Exit code 10: not exact; 13: no depth wins.

    Example: mtplx forge verify models/qwen3_5-mtplx-optimized-speed --stamp
    """
    from mtplx.forge.brand import require_stampable
    from mtplx.forge.brand import stamp as put_stamp
    from mtplx.forge.verify.replay import compare_replay, read_recorded
    from mtplx.forge.verify.verify import require_head, verify_artifact

    screen, folder = Screen(quiet=quiet or as_json), path.expanduser()
    if replay:
        _refuse_with_replay(depths, repeats, max_tokens, stamp=stamp)
    given = _settings(depths, repeats, max_tokens, speed)
    require_head(folder)
    recorded = read_recorded(folder, with_speed=speed) if replay else None
    settings = given if recorded is None else recorded.settings
    if settings.with_speed and settings.repeats < settings.repeats_needed:
        screen.warn(
            f"{settings.repeats} repeats can't show that a depth is faster; "
            f"{settings.repeats_needed} or more can"
        )
    if stamp:
        contract, _ = require_stampable(folder)
        if contract.speed_evidence is not None and not speed:
            screen.warn("the contract's evidence of speed is dropped: --no-speed measures none")
    with screen.progress() as progress:
        found = verify_artifact(folder, settings, progress.update)
    for warning in found.warnings:
        screen.warn(warning)
    compared = compare_replay(recorded, found) if recorded is not None else None
    if stamp:
        put_stamp(folder, found)
    _show(folder, found, compared, screen, as_json=as_json, stamped=stamp)
    raise typer.Exit(found.exit_code)


def _refuse_with_replay(
    depths: str | None, repeats: int | None, max_tokens: int | None, *, stamp: bool
) -> None:
    if stamp:
        raise UsageError(
            "--replay compares with the contract and --stamp replaces what it says.",
            hint="Give one of them.",
        )
    given = {"--depths": depths, "--repeats": repeats, "--max-tokens": max_tokens}
    if names := [name for name, value in given.items() if value is not None]:
        raise UsageError(
            f"--replay takes its settings from the contract, and {', '.join(names)} gives others.",
            hint="Leave out one or the other.",
        )


def _settings(
    depths: str | None, repeats: int | None, max_tokens: int | None, speed: bool
) -> "VerifySettings":
    """The defaults, with what was given in their place, and as many repeats as that needs."""
    from mtplx.forge.verify.settings import VerifySettings

    given: dict[str, Any] = {"with_speed": speed}
    if depths is not None:
        given["depths"] = _parse_depths(depths)
    if max_tokens is not None:
        given["max_tokens"] = max_tokens
    if repeats is not None:
        return VerifySettings(**given, repeats=repeats)
    settings = VerifySettings(**given)
    return dataclasses.replace(settings, repeats=max(settings.repeats, settings.repeats_needed))


def _parse_depths(text: str) -> tuple[int, ...]:
    items = [item.strip() for item in text.split(",")]
    if not all(item.isascii() and item.isdecimal() for item in items):
        raise InvalidRequestError(
            f"--depths: expected numbers from 1 to 8, separated by commas, found {text!r}.",
            key="depths",
        )
    return tuple(int(item) for item in items)


def _show(
    folder: Path,
    found: "Verification",
    compared: "Replay | None",
    screen: Screen,
    *,
    as_json: bool,
    stamped: bool,
) -> None:
    if as_json:
        told: dict[str, Any] = {**found.to_json(), "stamped": stamped}
        if compared is not None:
            told["replay"] = compared.to_json()
        screen.write_json(told)
        return
    rows = _result_rows(found)
    if compared is not None:
        outcome = "same result" if not compared.differences else "another result"
        rows.append(Row("replay", outcome))
        rows += [Row("replay", text) for text in (*compared.differences, *compared.conditions)]
    if stamped:
        rows.append(Row("contract", "stamped"))
    screen.table(folder.resolve().name, rows, sys.stdout)


def _result_rows(found: "Verification") -> list[Row]:
    exact, law = found.exactness, found.law
    rows = [Row("verdict", str(found.verdict))]
    rows += [Row("reason", reason) for reason in found.failure_reasons]
    rows.append(
        Row(
            "exactness",
            f"{exact.tokens} tokens compared, {len(exact.differences)} differences, "
            f"{len(exact.ties)} numeric ties",
        )
    )
    tested = f"{len(law.checks)} tests of {law.runs} runs"
    rows.append(Row("laws", f"{tested}, {len(law.failed)} failed, {len(law.repeated)} repeated"))
    if found.speed is not None:
        rows += [_speed_row(row) for row in found.speed.rows]
    return rows


def _speed_row(row: "SpeedRow") -> Row:
    if row.depth == 0:
        return Row("plain", f"{row.tok_s:.1f} tok/s")
    accepted = " ".join(f"{share:.2f}" for share in row.acceptance) or "-"
    return Row(
        f"depth {row.depth}",
        f"{row.tok_s:.1f} tok/s, {row.gain.median:.2f}x ({row.gain.low:.2f} to "
        f"{row.gain.high:.2f}), accepted {accepted}",
    )
