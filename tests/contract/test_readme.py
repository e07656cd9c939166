"""The README tells the truth: exit codes, commands and families are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mtplx.app import COMMANDS
from mtplx.contracts.errors import EXIT_CODES
from mtplx.contracts.families import FAMILIES
from mtplx.contracts.inspection import Tier

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_table_of_exit_codes_is_complete() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.+) \|$", README, re.MULTILINE)
    assert rows == [(str(row.number), row.name, row.meaning) for row in EXIT_CODES]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_shown(command: str) -> None:
    assert f"mtplx {command}" in README


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.runnable], ids=lambda f: f.name)
def test_every_runnable_family_is_named(family: object) -> None:
    assert any(f"`{name}`" in README for name in family.model_types)  # type: ignore[attr-defined]


@pytest.mark.parametrize("tier", list(Tier))
def test_every_tier_is_named(tier: Tier) -> None:
    assert f"`{tier}`" in README
