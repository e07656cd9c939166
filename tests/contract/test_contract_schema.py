"""The shipped JSON Schema, the documented fields and the models are one thing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mtplx.contracts import contract_schema as module
from mtplx.contracts.contract_schema import (
    SCHEMA_NAME,
    contract_schema,
    field_table,
    schema_text,
    shipped_schema,
)
from mtplx.contracts.runtime_contract import RuntimeContract

DOCS = Path(__file__).parents[2] / "docs" / "contract.md"


def test_shipped_schema_is_current() -> None:
    assert Path(module.__file__).with_name(SCHEMA_NAME).read_text(encoding="utf-8") == schema_text()
    assert shipped_schema() == contract_schema()


def test_documented_fields_are_current() -> None:
    text = DOCS.read_text(encoding="utf-8")
    table = text.partition("--table` -->\n")[2].partition("<!-- end of fields -->")[0]
    assert table == field_table()


@pytest.mark.parametrize(
    ("arguments", "expected"), [([], schema_text()), (["--table"], field_table())]
)
def test_both_are_printed_by_the_module(arguments: list[str], expected: str) -> None:
    command = [sys.executable, "-m", "mtplx.contracts.contract_schema", *arguments]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == expected


def test_every_top_level_field_is_in_the_schema_with_a_writer() -> None:
    properties = contract_schema()["properties"]
    assert properties.keys() == RuntimeContract.model_fields.keys()
    writers = ("(convert)", "(calibrate)", "(verify)", "(brand)", "(publish)")
    assert all(line.removesuffix(" |").rstrip(".").endswith(writers) for line in rows())


def rows() -> list[str]:
    return field_table().splitlines()[2:]


def test_inner_fields_are_in_the_table() -> None:
    names = {line.split("`")[1] for line in rows()}
    assert {"head.quantization.*.bits", "content.files.*.header_sha256", "exactness.law"} <= names


def test_unknown_keys_are_allowed_everywhere() -> None:
    schema: dict[str, Any] = contract_schema()
    for part in (schema, *schema["$defs"].values()):
        assert part["additionalProperties"] is True, part["title"]


def test_schema_is_plain_json() -> None:
    assert json.loads(schema_text()) == contract_schema()
