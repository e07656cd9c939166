"""JSON objects from files that a stranger wrote."""

import json
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import CorruptModelError, MTPLXError

# Real configs, indexes and contracts stay far below; tokenizer.json reaches tens of megabytes.
MAX_JSON_BYTES = 256 * 1024 * 1024


class DuplicateKeyError(ValueError):
    """A JSON object names a key twice, so two readers may see two different files."""


def parse_object(data: bytes, *, unique_keys: bool = False) -> dict[str, Any]:
    """The JSON object in `data` (UTF-8).

    Raises ValueError with a one-line reason for everything else: other encodings, syntax,
    nesting too deep for the parser, numbers beyond its limit, a value that is no object, and
    with `unique_keys` a key that occurs twice in one object.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(text, object_pairs_hook=unique_pairs if unique_keys else None)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {type(value).__name__}")
    return value


def read_object(
    path: Path,
    *,
    unique_keys: bool = False,
    error: type[MTPLXError] = CorruptModelError,
    hint: str = "Fetch the file again.",
) -> dict[str, Any]:
    """The JSON object in the file `path`; `error` names the file when there is none."""
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise ValueError(f"{size} bytes, more than the {MAX_JSON_BYTES} allowed")
        return parse_object(path.read_bytes(), unique_keys=unique_keys)
    except OSError as cause:
        reason = cause.strerror or str(cause)
        raise error(f"{path} cannot be read: {reason}.", hint=hint) from cause
    except ValueError as cause:
        raise error(f"{path} is not a valid JSON object: {cause}.", hint=hint) from cause


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of `pairs`; raises DuplicateKeyError."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(f"key {key!r} occurs twice")
            seen.add(key)
    return result
