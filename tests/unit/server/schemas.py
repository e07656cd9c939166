"""The keys of requests, as the official clients have them and as they are declared here."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def keys_of(*typed: Any) -> set[str]:
    """The keys of TypedDicts."""
    return {key for one in typed for key in one.__annotations__}


def fields_of(model: type[BaseModel]) -> set[str]:
    """The keys that a model takes."""
    return {field.alias or name for name, field in model.model_fields.items()}
