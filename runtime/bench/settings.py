"""Checking what was asked of a benchmark."""

from __future__ import annotations

from mtplx.contracts.errors import InvalidRequestError


def check(key: str, value: int, least: int, most: int | None = None) -> None:
    """Raise InvalidRequestError unless `value` lies in its range."""
    if value < least or (most is not None and value > most):
        expected = f"{least} to {most}" if most is not None else f"{least} or more"
        raise InvalidRequestError(f"{key} is {value}, expected {expected}", key=key)
