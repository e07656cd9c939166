"""The JSON Schema of the report; `python -m mtplx.runtime.diagnostics.schema` prints it."""

import json
import sys
from importlib.resources import files
from typing import Any, Final

from mtplx.runtime.diagnostics.report import SCHEMA_VERSION, Report

SCHEMA_NAME: Final = "doctor.schema.json"


def report_schema() -> dict[str, Any]:
    """The schema, generated from the models."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Report.model_json_schema(mode="serialization"),
        "title": f"mtplx doctor report, version {SCHEMA_VERSION}",
    }


def schema_text() -> str:
    """The schema as the shipped file holds it."""
    return json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n"


def shipped_schema() -> dict[str, Any]:
    """The schema that is installed with the package."""
    text = files("mtplx.runtime.diagnostics").joinpath(SCHEMA_NAME).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


if __name__ == "__main__":
    sys.stdout.write(schema_text())
