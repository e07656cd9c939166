"""The JSON Schema of `mtplx_runtime.json`, and the table of its fields for readers.

`python -m mtplx.contracts.contract_schema` prints the schema, with `--table` the table.
"""

import json
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.runtime_contract import RuntimeContract

SCHEMA_NAME: Final = "contract.schema.json"


def contract_schema() -> dict[str, Any]:
    """The schema, generated from the models; keys that it does not name are allowed."""
    generated = RuntimeContract.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **generated,
        "title": CONTRACT_NAME,
        "description": "What an MTP artifact claims about itself.",
    }


def schema_text() -> str:
    """The schema as the shipped file holds it."""
    return json.dumps(contract_schema(), indent=2, ensure_ascii=False) + "\n"


def shipped_schema() -> dict[str, Any]:
    """The schema that is installed with the package."""
    text = files("mtplx.contracts").joinpath(SCHEMA_NAME).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def field_table() -> str:
    """Every field in Markdown: name, type, and what its description says."""
    schema = contract_schema()
    lines = ["| field | type | meaning (who writes it) |", "|---|---|---|"]
    for name, field in _fields(schema, schema, ""):
        kind = _kind(field).replace("|", "\\|")
        lines.append(f"| `{name}` | {kind} | {field['description']} |")
    return "\n".join(lines) + "\n"


def _fields(
    schema: dict[str, Any], part: dict[str, Any], prefix: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields of `part` and of the parts inside it, by dotted names; `*` stands for any key."""
    for name, field in part["properties"].items():
        yield f"{prefix}{name}", field
        for option in _options(field):
            inner, suffix = option, "."
            if isinstance(option.get("additionalProperties"), dict):
                inner, suffix = option["additionalProperties"], ".*."
            if reference := inner.get("$ref"):
                target = schema["$defs"][reference.rpartition("/")[2]]
                yield from _fields(schema, target, f"{prefix}{name}{suffix}")


def _options(field: dict[str, Any]) -> list[dict[str, Any]]:
    options: list[dict[str, Any]] = field.get("anyOf", [field])
    return options


def _kind(field: dict[str, Any]) -> str:
    """The JSON types that a field may have."""
    kinds = []
    for option in _options(field):
        if "enum" in option:
            kinds += [f"`{value}`" for value in option["enum"]]
        else:
            kinds.append("object" if "$ref" in option else option["type"])
    return " | ".join(kinds)


if __name__ == "__main__":
    sys.stdout.write(field_table() if "--table" in sys.argv[1:] else schema_text())
