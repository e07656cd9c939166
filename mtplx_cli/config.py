"""Settings, resolved once: defaults < profile < `config.toml` < `MTPLX_*` variables < explicit values."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from mtplx.contracts.errors import UsageError
from mtplx.contracts.folders import config_folder
from mtplx.profiles import profile_options
from mtplx.settings import KEYS, Settings, about

PREFIX = "MTPLX_"

# Variables that steer the process itself and therefore are no settings.
PROCESS_VARIABLES = frozenset({"MTPLX_BLAS", "MTPLX_DEBUG", "MTPLX_HOME"})


class Origin(NamedTuple):
    """Where a value comes from; `name` is the profile, file, variable or flag."""

    kind: Literal["default", "profile", "file", "environment", "flag"]
    name: str

    def __str__(self) -> str:
        return {
            "default": "the defaults",
            "profile": f"the profile {self.name}",
            "file": self.name,
            "environment": f"the environment variable {self.name}",
            "flag": f"the explicit values (flag {self.name})",
        }[self.kind]


class Config(Settings, BaseSettings):
    """The settings of one process."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    @classmethod
    def load(cls, **explicit: object) -> Self:
        """Resolve all sources; an explicit value of None counts as not given.

        Raises UsageError naming the key, where it was set, what was expected and what was found.
        """
        given = _said(explicit)
        _check_variables()
        try:
            return cls(**given)  # type: ignore[arg-type]
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise unreadable(error) from error
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            raise refusal(error, str(_origin(key, given, _file_values()))) from error

    def origins(self, **explicit: object) -> dict[str, Origin]:
        """Where each value comes from, of a config that was loaded with `explicit`."""
        given, in_file = _said(explicit), _file_values()
        from_profile = profile_options(self.profile)
        found = {}
        for key in KEYS:
            found[key] = _origin(key, given, in_file)
            if found[key].kind == "default" and key in from_profile:
                found[key] = Origin("profile", self.profile)
        return found

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Strongest first; `.env` files and secret folders are not read."""
        file_settings = TomlConfigSettingsSource(settings_cls, config_file())
        return init_settings, env_settings, file_settings, _ProfileSource(settings_cls)


class _ProfileSource(PydanticBaseSettingsSource):
    """The options of the profile that the stronger sources name."""

    def get_field_value(
        self,
        field: FieldInfo,  # noqa: ARG002
        field_name: str,
    ) -> tuple[Any, str, bool]:
        return self().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(profile_options(self.current_state.get("profile")))


def config_file() -> Path:
    """Where `config.toml` is looked for; `MTPLX_HOME` replaces the platform's folder."""
    return config_folder() / "config.toml"


def variable(key: str) -> str | None:
    """The environment variable that sets `key` now, in the spelling it has."""
    wanted = PREFIX + key.upper()
    return next((name for name in os.environ if name.upper() == wanted), None)


def unreadable(error: Exception) -> UsageError:
    """What to tell when the file is not there for reading, or no TOML."""
    return UsageError(
        f"{config_file()} cannot be read as TOML: {error}",
        hint="Correct the file, or move it away to run with the defaults.",
    )


def refusal(error: ValidationError, origin: str) -> UsageError:
    """What to tell about the first wrong value, which was set in `origin`."""
    first = error.errors()[0]
    key, found = str(first["loc"][0]), first["input"]
    if first["type"] == "extra_forbidden":
        return unknown_key(key, origin)
    return UsageError(
        f"setting {key!r} in {origin}: expected {about(key).expected}, found {found!r}",
        hint="Correct the value, or remove it to use the default.",
    )


def unknown_key(key: str, origin: str) -> UsageError:
    """What to tell about a key that is none."""
    return UsageError(
        f"unknown setting {key!r} in {origin}; expected one of {', '.join(KEYS)}",
        hint="Correct the name, or remove the setting.",
    )


def _said(explicit: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in explicit.items() if value is not None}


def _file_values() -> dict[str, object]:
    """What a file says that was read without complaint a moment ago."""
    file = config_file()
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _check_variables() -> None:
    known = {PREFIX + key.upper() for key in KEYS} | PROCESS_VARIABLES
    unknown = sorted(v for v in os.environ if v.startswith(PREFIX) and v not in known)
    if unknown:
        raise UsageError(
            f"unknown setting {unknown[0]} in the environment (value {os.environ[unknown[0]]!r}); "
            f"expected one of {', '.join(sorted(known))}",
            hint=f"Correct the name, or run `unset {unknown[0]}`.",
        )


def _origin(key: str, given: Mapping[str, object], in_file: Mapping[str, object]) -> Origin:
    """The strongest source that names `key`; the profile is not looked at."""
    if key in given:
        return Origin("flag", f"--{key.replace('_', '-')}")
    if (found := variable(key)) is not None:
        return Origin("environment", found)
    return Origin("file", str(config_file())) if key in in_file else Origin("default", "")
