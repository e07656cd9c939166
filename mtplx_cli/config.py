"""Settings, resolved once: defaults < `config.toml` < `MTPLX_*` variables < explicit values."""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from mtplx.contracts.errors import UsageError
from mtplx.contracts.folders import config_folder
from mtplx.runtime.scheduler.modes import SchedulerMode

PREFIX = "MTPLX_"

# Variables that steer the process itself and therefore are no settings.
PROCESS_VARIABLES = frozenset({"MTPLX_BLAS", "MTPLX_DEBUG", "MTPLX_HOME"})


def _refuse_bool(value: object) -> object:
    """pydantic takes `true` for the number 1."""
    if isinstance(value, bool):
        raise ValueError("a truth value is not a number")
    return value


_Count = Annotated[int, BeforeValidator(_refuse_bool), Field(ge=1)]
_Depth = Annotated[int, BeforeValidator(_refuse_bool), Field(ge=0, le=8)]


class Config(BaseSettings):
    """The settings of one process; a field's description is what error messages call expected."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    scheduler_mode: SchedulerMode = Field(
        SchedulerMode.SERIAL, description="one of " + ", ".join(SchedulerMode)
    )
    model: str | None = Field(None, min_length=1, description="the path of a model folder")
    depth: _Depth | Literal["auto"] = Field("auto", description="a number from 0 to 8, or auto")
    acceptance: Literal["coupled", "rejection", "block"] = Field(
        "coupled", description="one of coupled, rejection, block"
    )
    max_tokens: _Count = Field(256, description="a number of tokens, 1 or more")
    prefill_chunk: _Count = Field(512, description="a number of tokens, 1 or more")

    @classmethod
    def load(cls, **explicit: object) -> Self:
        """Resolve all sources; an explicit value of None counts as not given.

        Raises UsageError naming the key, where it was set, what was expected and what was found.
        """
        given = {key: value for key, value in explicit.items() if value is not None}
        _check_variables(cls)
        try:
            return cls(**given)  # type: ignore[arg-type]
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(
                f"{config_file()} cannot be read as TOML: {error}",
                hint="Correct the file, or move it away to run with the defaults.",
            ) from error
        except ValidationError as error:
            raise _usage_error(cls, error, given) from error

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
        return init_settings, env_settings, file_settings


def config_file() -> Path:
    """Where `config.toml` is looked for; `MTPLX_HOME` replaces the platform's folder."""
    return config_folder() / "config.toml"


def _check_variables(cls: type[BaseSettings]) -> None:
    known = {PREFIX + name.upper() for name in cls.model_fields} | PROCESS_VARIABLES
    unknown = sorted(v for v in os.environ if v.startswith(PREFIX) and v not in known)
    if unknown:
        raise UsageError(
            f"unknown setting {unknown[0]} in the environment (value {os.environ[unknown[0]]!r}); "
            f"expected one of {', '.join(sorted(known))}",
            hint=f"Correct the name, or run `unset {unknown[0]}`.",
        )


def _usage_error(
    cls: type[BaseSettings], error: ValidationError, given: dict[str, object]
) -> UsageError:
    first = error.errors()[0]
    key, found = str(first["loc"][0]), first["input"]
    origin = _origin(key, given)
    if first["type"] == "extra_forbidden":
        return UsageError(
            f"unknown setting {key!r} in {origin}; expected one of {', '.join(cls.model_fields)}",
            hint="Correct the name, or remove the setting.",
        )
    return UsageError(
        f"setting {key!r} in {origin}: "
        f"expected {cls.model_fields[key].description}, found {found!r}",
        hint="Correct the value, or remove it to use the default.",
    )


def _origin(key: str, given: dict[str, object]) -> str:
    if key in given:
        return f"the explicit values (flag --{key.replace('_', '-')})"
    variable = PREFIX + key.upper()
    if variable in os.environ:
        return f"the environment variable {variable}"
    return str(config_file())
