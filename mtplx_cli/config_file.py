"""Changing `config.toml`: one process at a time, all or nothing, and whatever else is in it stays."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Final

import tomlkit
from filelock import FileLock, Timeout
from pydantic import ValidationError
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError

from mtplx.config import config_file, refusal, unknown_key, unreadable
from mtplx.contracts.errors import UsageError
from mtplx.contracts.files import write_bytes, write_error
from mtplx.settings import KEYS, Settings

LOCK_TIMEOUT_S: Final = 10.0

# The file may name a model or a folder of a person.
_MODE = 0o600


def set_value(key: str, text: str) -> Any:
    """Set `key` to what `text` means, and return that as it is in the file.

    Raises UsageError when key or value are wrong, or anything else in the file is; nothing is
    written then.
    """
    value = _parse(key, text)
    with _locked_file() as file:
        document = _read(file)
        document[key] = value
        _check(document)
        _write(file, document)
    return value


def unset_value(key: str) -> bool:
    """Remove `key`, known or not, and say whether it was there. Raises UsageError."""
    with _locked_file() as file:
        document = _read(file)
        if key not in document:
            return False
        document.remove(key)
        _write(file, document)
    return True


def _parse(key: str, text: str) -> Any:
    """`text` as a TOML value."""
    if key not in KEYS:
        raise unknown_key(key, "the argument")
    try:
        value = getattr(Settings.model_validate({key: text}), key)
    except ValidationError as error:
        raise refusal(error, "the argument") from error
    if isinstance(value, tuple):
        return [*value]
    return value.value if isinstance(value, Enum) else value


@contextmanager
def _locked_file() -> Iterator[Path]:
    """The file itself where `config.toml` is a link, kept from other processes of mtplx."""
    file = config_file().resolve()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(file.with_name(f".{file.name}.lock"), timeout=LOCK_TIMEOUT_S, mode=_MODE):
            yield file
    except Timeout as cause:
        raise UsageError(
            f"{file} has been locked by another process for {LOCK_TIMEOUT_S:g} s.",
            hint="Run the command again when that process has ended.",
        ) from cause
    except OSError as cause:
        raise write_error(file, cause) from cause


def _read(file: Path) -> TOMLDocument:
    if not file.exists():
        return tomlkit.document()
    try:
        return tomlkit.parse(file.read_bytes().decode("utf-8"))
    except (OSError, UnicodeDecodeError, TOMLKitError) as error:
        raise unreadable(error) from error


def _check(document: TOMLDocument) -> None:
    try:
        Settings.model_validate(document.unwrap())
    except ValidationError as error:
        raise refusal(error, str(config_file())) from error


def _write(file: Path, document: TOMLDocument) -> None:
    """Keep the permissions that the file has."""
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else _MODE
    write_bytes(file, tomlkit.dumps(document).encode("utf-8"), mode=mode)
