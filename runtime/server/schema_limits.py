"""What a JSON schema from a client may be before a grammar is made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mtplx.contracts.errors import InvalidRequestError

MAX_SCHEMA_BYTES = 128 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_SCHEMA_PROPERTIES = 2000


def require_schema(schema: Any, key: str) -> None:
    """Raise InvalidRequestError, naming `key`, for a schema that is none or beyond a limit."""
    if not isinstance(schema, Mapping | bool):
        raise InvalidRequestError(
            f"{key} is a {type(schema).__name__}, expected a JSON schema.", key=key
        )
    properties = 0
    for depth, part in _walk(schema):
        if depth > MAX_SCHEMA_DEPTH:
            raise _beyond(key, f"is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        if not isinstance(part, Mapping):
            continue
        if "x-guidance" in part:
            raise InvalidRequestError(f"{key} has the keyword 'x-guidance'.", key=key)
        named = part.get("properties")
        properties += len(named) if isinstance(named, Mapping) else 0
        if properties > MAX_SCHEMA_PROPERTIES:
            raise _beyond(key, f"has more than {MAX_SCHEMA_PROPERTIES} properties")
    size = len(json.dumps(schema))
    if size > MAX_SCHEMA_BYTES:
        raise _beyond(key, f"has {size} bytes, more than {MAX_SCHEMA_BYTES}")


def require_parameters(schema: Any, key: str) -> None:
    """Raise InvalidRequestError, naming `key`, for what does not describe the arguments of a function."""
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise InvalidRequestError(f"{key} is not the JSON schema of an object.", key=key)
    require_schema(schema, key)
    for name, kind, what in (("properties", Mapping, "an object"), ("required", list, "a list")):
        if not isinstance(schema.get(name, {} if kind is Mapping else []), kind):
            raise InvalidRequestError(f"{key}.{name} is not {what}.", key=f"{key}.{name}")


def _walk(value: Any) -> Iterator[tuple[int, Any]]:
    """Every value inside with its depth; no recursion, the schema may be deep."""
    waiting = [(0, value)]
    while waiting:
        depth, part = waiting.pop()
        yield depth, part
        if isinstance(part, Mapping):
            waiting += [(depth + 1, item) for item in part.values()]
        elif isinstance(part, list):
            waiting += [(depth + 1, item) for item in part]


def _beyond(key: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{key} {what}.", key=key)
