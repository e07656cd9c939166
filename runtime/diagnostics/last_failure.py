"""A record of the last command that failed, for the next `mtplx doctor`.

It holds no prompt: what was given on the command line is taken out of the message, and of a bug
only the kind of error is kept.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mtplx.contracts.errors import InternalError, MTPLXError, UsageError
from mtplx.contracts.files import write_json
from mtplx.contracts.folders import state_folder
from mtplx.runtime.diagnostics.catalogue import passed, warned
from mtplx.runtime.diagnostics.redaction import Redactor
from mtplx.runtime.diagnostics.report import Check

NAME = "last_failure.json"

# Shorter arguments are numbers and common words.
_LEAST_ARGUMENT = 4


class LastFailure(BaseModel):
    """What failed and when; `code` and `exit_code` are those of the error.

    `model` is what the command line named.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    time: datetime
    command: str
    code: str
    exit_code: int
    message: str
    model: str | None


def record_file() -> Path:
    """Where the record is."""
    return state_folder() / NAME


def record_failure(command: str, arguments: Sequence[str], error: MTPLXError) -> None:
    """Keep what failed; a wrong request is no failure of the machine and is not kept.

    Raises MTPLXError or OSError when it cannot be written.
    """
    if isinstance(error, UsageError):
        return
    failure = LastFailure(
        time=datetime.now(UTC),
        command=command,
        code=error.code,
        exit_code=error.exit_code,
        message=_message(error, arguments),
        model=_named_model(arguments),
    )
    file = record_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(file, failure.model_dump(mode="json"), mode=0o600)


def forget_failure(command: str) -> None:
    """Remove the record of `command`, which has worked now. Raises OSError."""
    found = read_failure()
    if isinstance(found, LastFailure) and found.command == command:
        record_file().unlink(missing_ok=True)


def read_failure() -> LastFailure | str | None:
    """The record, what is wrong with it, or None when there is none."""
    path = record_file()
    try:
        return LastFailure.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as cause:
        return f"{path} cannot be read: {cause.strerror}"
    except (ValueError, ValidationError):
        return f"{path} is damaged"


def check_last_failure(found: LastFailure | str | None, file: Path) -> Check:
    """Whether the last command failed; the record is `file`."""
    if found is None:
        return passed("app.last_failed_start", "none")
    if isinstance(found, str):
        command = f"rm {shlex.quote(str(file))}"
        return warned("app.last_failed_start", found, "Remove the file.", command)
    observed = (
        f"mtplx {found.command} on {found.time:%Y-%m-%d %H:%M} UTC, {found.code} "
        f"(exit code {found.exit_code}): {found.message}"
    )
    fix = "Mend what the other checks say and run it again; success removes the record."
    return warned("app.last_failed_start", observed, fix)


def _message(error: MTPLXError, arguments: Sequence[str]) -> str:
    if isinstance(error, InternalError):
        return error.message.partition(":")[0]
    message = error.message
    for value in sorted(_private_values(arguments), key=len, reverse=True):
        for form in (value, repr(value)[1:-1]):
            message = message.replace(form, "<argument>")
    return Redactor.of_this_machine().without_secrets(message)


def _named_model(arguments: Sequence[str]) -> str | None:
    for before, argument in pairwise(("", *arguments)):
        if before == "--model" or argument.startswith("--model="):
            name = argument.removeprefix("--model=")
            return Redactor.of_this_machine().without_secrets(name)
    return None


def _private_values(arguments: Sequence[str]) -> Iterator[str]:
    """All that was given but the model, without which a failure could not be understood."""
    before = ""
    for argument in arguments:
        name, _, value = (
            argument.partition("=") if argument.startswith("--") else ("", "", argument)
        )
        if "--model" not in (before, name) and len(value) >= _LEAST_ARGUMENT:
            yield value
        before = argument
