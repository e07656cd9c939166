"""`mtplx config`: what is set, where it comes from, and changing the settings file."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.config import Config, Origin
    from mtplx.profiles import Profile

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no notes.")]

_COLUMNS = "{:<14}  {:<24}  {:<34}  {}"


def _complete_key(incomplete: str) -> list[str]:
    from mtplx.settings import KEYS

    return [key for key in KEYS if key.startswith(incomplete)]


KeyArgument = Annotated[
    str,
    typer.Argument(help="A key, as `mtplx config show` lists them.", autocompletion=_complete_key),
]

config = typer.Typer(
    help="Show and change the settings, and explain the profiles.", no_args_is_help=True
)


@config.command()
def show(as_json: JsonOption = False, quiet: QuietOption = False) -> None:  # noqa: ARG001
    """Show every setting with its value, where that comes from, and what could be there instead.

    A value comes from the strongest source that has one: a flag of the command, else an
    environment variable (MTPLX_ and the key in capitals), else the settings file, else the
    profile, else the default.

    Example: mtplx config show

    Example: mtplx config show --json | jq '.settings[] | select(.origin != "default")'
    """
    from mtplx.config import Config, config_file
    from mtplx.settings import KEYS, about

    settings = Config.load()
    origins = settings.origins()
    screen = Screen()
    if as_json:
        rows = [setting_json(settings, key, origins[key]) for key in KEYS]
        screen.write_json({"file": str(config_file()), "settings": rows})
        return
    lines = [_COLUMNS.format("key", "value", "from", "expected")]
    for key in KEYS:
        value, origin = shown(getattr(settings, key)), _short(origins[key])
        lines.append(_COLUMNS.format(key, value, origin, about(key).expected))
    screen.write("\n".join(lines) + "\n")


@config.command()
def get(key: KeyArgument, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Print the value of one setting; nothing but a line break where none is set.

    Example: mtplx config get depth
    """
    from mtplx.config import Config, unknown_key
    from mtplx.settings import KEYS

    if key not in KEYS:
        raise unknown_key(key, "the argument")
    settings = Config.load()
    origin = settings.origins()[key]
    screen = Screen(quiet=quiet or as_json)
    if as_json:
        screen.write_json(setting_json(settings, key, origin))
        return
    screen.write(_text(getattr(settings, key)) + "\n")
    screen.note(f"from {origin}")


@config.command(name="set", context_settings={"ignore_unknown_options": True})
def set_(
    key: KeyArgument,
    value: Annotated[str, typer.Argument(help="The new value; several folders as in PATH.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write one setting to the settings file; nothing is written if it is wrong.

    Comments and other keys of the file stay as they are.

    Example: mtplx config set depth 3

    Example: mtplx config set model_dirs ~/models:/mnt/models
    """
    from mtplx.config import config_file, variable
    from mtplx.config_file import set_value

    written = set_value(key, value)
    screen = Screen(quiet=quiet or as_json)
    overridden_by = variable(key)
    if as_json:
        screen.write_json(
            {
                "key": key,
                "value": written,
                "file": str(config_file()),
                "overridden_by": overridden_by,
            }
        )
        return
    screen.note(f"{key} is {shown(written)} in {config_file()}")
    if overridden_by is not None:
        screen.warn(f"{overridden_by} in the environment goes before it")


@config.command()
def unset(
    key: Annotated[str, typer.Argument(help="A key of the file.", autocompletion=_complete_key)],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Take one setting out of the settings file; its profile or its default is used again.

    Keys that are no settings can be taken out too, so that a file is mended this way.

    Example: mtplx config unset depth
    """
    from mtplx.config import config_file, unknown_key
    from mtplx.config_file import unset_value
    from mtplx.settings import KEYS

    was_there = unset_value(key)
    if not was_there and key not in KEYS:
        raise unknown_key(key, "the argument")
    screen = Screen(quiet=quiet or as_json)
    if as_json:
        screen.write_json({"key": key, "file": str(config_file()), "was_set": was_there})
        return
    done = "is no longer set" if was_there else "was not set"
    screen.note(f"{key} {done} in {config_file()}")


@config.command()
def path(as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Print where the settings file is, or would be.

    Example: $EDITOR "$(mtplx config path)"
    """
    from mtplx.config import config_file

    file = config_file()
    screen = Screen(quiet=quiet or as_json)
    if as_json:
        screen.write_json({"file": str(file), "exists": file.exists()})
        return
    screen.write(f"{file}\n")
    if not file.exists():
        screen.note("there is no such file yet; `mtplx config set` makes it")


@config.command()
def profiles(as_json: JsonOption = False, quiet: QuietOption = False) -> None:  # noqa: ARG001
    """Explain the profiles: what each sets, what that gives, and what it costs.

    A profile replaces defaults only: what the file, the environment or a flag says goes before it.
    Choose one for a single command with --profile, or for all with `mtplx config set profile`.

    Example: mtplx config profiles

    Example: mtplx run --profile burst "Write a haiku."
    """
    from mtplx.profiles import PROFILES

    screen = Screen()
    if as_json:
        screen.write_json({"profiles": [profile.to_json() for profile in PROFILES.values()]})
        return
    screen.write("\n\n".join(_explained(profile) for profile in PROFILES.values()) + "\n")


def setting_json(settings: "Config", key: str, origin: "Origin") -> dict[str, Any]:
    """One setting: key, value, origin, origin_name, default, expected, description, variable."""
    from mtplx.config import PREFIX
    from mtplx.settings import Settings, about

    return {
        "key": key,
        "value": _plain(getattr(settings, key)),
        "origin": origin.kind,
        "origin_name": origin.name or None,
        "default": _plain(Settings.model_fields[key].default),
        "expected": about(key).expected,
        "description": about(key).meaning,
        "variable": PREFIX + key.upper(),
    }


def shown(value: object) -> str:
    """A value in a table: `-` stands for none."""
    return _text(value) or "-"


def _text(value: object) -> str:
    """A value as `config set` takes it; nothing for none."""
    if value is None:
        return ""
    return os.pathsep.join(value) if isinstance(value, list | tuple) else str(value)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _short(origin: "Origin") -> str:
    if origin.kind == "default":
        return "default"
    return f"{origin.kind} {origin.name}" if origin.kind == "profile" else origin.name


def _explained(profile: "Profile") -> str:
    also = f" (also {', '.join(profile.aliases)})" if profile.aliases else ""
    options = ", ".join(f"{key} {value}" for key, value in profile.options.items())
    return "\n".join(
        [
            f"{profile.name}{also}: {profile.purpose}",
            f"  sets   {options}",
            f"  gives  {profile.gives}",
            f"  costs  {profile.costs}",
        ]
    )
