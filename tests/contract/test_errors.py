"""The error tree and its one table of exit codes."""

from __future__ import annotations

import inspect
import json

import pytest

from mtplx.contracts import errors
from mtplx.contracts.errors import EXIT_CODES, MTPLXError, exit_code_for_tier
from mtplx.contracts.inspection import Tier

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, MTPLXError) and value is not MTPLXError
]


def build(cls: type[MTPLXError]) -> MTPLXError:
    if cls is errors.InvalidRequestError:
        return errors.InvalidRequestError("bad value", key="top_p", hint="use 0..1")
    return cls("bad value", hint="use 0..1")


def test_numbers_and_names_of_the_table_are_unique() -> None:
    assert len({row.number for row in EXIT_CODES}) == len(EXIT_CODES)
    assert len({row.name for row in EXIT_CODES}) == len(EXIT_CODES)
    assert [row.number for row in EXIT_CODES] == [*range(15), 130]


def test_every_row_but_success_and_interruption_belongs_to_one_branch() -> None:
    branches = [cls for cls in CLASSES if cls.__base__ is MTPLXError]
    assert sorted(cls.exit_code for cls in branches) == list(range(1, 15))


@pytest.mark.parametrize("cls", CLASSES)
def test_a_subclass_keeps_the_exit_code_of_its_branch(cls: type[MTPLXError]) -> None:
    branch = next(c for c in CLASSES if c.__base__ is MTPLXError and issubclass(cls, c))
    assert cls.exit_code == branch.exit_code


def test_codes_for_machines_are_unique() -> None:
    assert len({cls.code for cls in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize("cls", CLASSES)
def test_json_of_an_error_says_everything(cls: type[MTPLXError]) -> None:
    found = json.loads(json.dumps(build(cls).to_json()))
    assert found["message"] == "bad value"
    assert found["hint"] == "use 0..1"
    assert found["code"] == cls.code
    assert found["title"] == cls.title
    assert found["exit_code"] == cls.exit_code


def test_text_of_an_error_ends_with_what_to_do() -> None:
    assert str(errors.UsageError("No prompt.", hint="Give one.")) == "No prompt. Give one."
    assert str(errors.UsageError("No prompt.")) == "No prompt."


def test_request_error_names_its_key() -> None:
    error = errors.InvalidRequestError("must be positive", key="top_k")
    assert error.key == error.to_json()["key"] == "top_k"


@pytest.mark.parametrize("tier", Tier)
def test_every_tier_has_an_exit_code_of_the_table(tier: Tier) -> None:
    runs = tier not in (Tier.INCOMPATIBLE, Tier.CORRUPT)
    assert (exit_code_for_tier(tier) == 0) is runs
    assert exit_code_for_tier(tier) in {row.number for row in EXIT_CODES}
