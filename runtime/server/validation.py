"""From a JSON body to a request of known keys, and from what pydantic finds wrong to a refusal naming the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from mtplx.contracts.errors import InvalidRequestError

LABEL = "#"
"""What the tags of unions begin with, so that they are not taken for keys."""

_REFUSED = "refused"


class RequestPart(BaseModel):
    """An object in a request: keys that are not declared are refused, and no value is turned into another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


Part = TypeVar("Part", bound=BaseModel)


def parse(kind: type[Part], body: Mapping[str, Any]) -> Part:
    """`body` as a `kind`. Raises InvalidRequestError with the path of the first key that is wrong."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise _refusal(first, body) from None


def refuse(reason: str) -> NoReturn:
    """Raise, in a validator, that a value is refused; `reason` follows the key."""
    raise PydanticCustomError(_REFUSED, "{reason}", {"reason": reason})


def refused(reason: str) -> BeforeValidator:
    """Marks a key of the public schema that only null is taken for."""

    def check(value: Any) -> None:
        if value is not None:
            refuse(f"is not available here: {reason}")

    return BeforeValidator(check)


def _refusal(error: ErrorDetails, body: Mapping[str, Any]) -> InvalidRequestError:
    key = _path(error, body) or "body"
    if error["type"] == "extra_forbidden":
        return InvalidRequestError(f"{key} is not a key that this server knows.", key=key)
    if error["type"] == "missing":
        return InvalidRequestError(f"{key} is missing.", key=key)
    if error["type"] == _REFUSED:
        return InvalidRequestError(f"{key} {error['msg']}.", key=key)
    shown = repr(error["input"])
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    reason = error["msg"][:1].lower() + error["msg"][1:]
    return InvalidRequestError(f"{key} is {shown}: {reason}.", key=key)


def _path(error: ErrorDetails, body: Mapping[str, Any]) -> str:
    """Where the error is, as `messages[0].content`; pydantic's location also names the branches of unions."""
    path = ""
    at: Any = body
    for number, step in enumerate(error["loc"], 1):
        is_last = number == len(error["loc"])
        if isinstance(step, int) and isinstance(at, Sequence):
            path, at = f"{path}[{step}]", at[step]
        elif isinstance(step, str) and isinstance(at, Mapping) and not step.startswith(LABEL):
            is_missing = is_last and error["type"] == "missing"
            if step in at or is_missing:
                path, at = f"{path}.{step}", at.get(step)
    return path.removeprefix(".")
