"""API keys: who may use a server."""

from __future__ import annotations

import hashlib
import hmac
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from mtplx.contracts.errors import UsageError

MIN_LENGTH: Final = 16
MAX_FILE_BYTES: Final = 64 * 1024

_LINE: Final = re.compile(r"(?P<name>[A-Za-z0-9_.-]{1,64})\s*:\s*(?P<key>[\x21-\x7e]+)")
_FORM: Final = "lines of the form `name: key`; a key has 16 or more characters without spaces"


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """The hashes of keys with their names; the keys themselves are forgotten."""

    digests: tuple[tuple[str, bytes], ...]

    @classmethod
    def of(cls, **keys: str) -> Self:
        """From names and keys."""
        return cls(tuple((name, _digest(key.encode())) for name, key in keys.items()))

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file that nobody else may read.

        Empty lines and lines that begin with `#` say nothing.

        Raises:
            UsageError: the file cannot be read, others may read it, or its content is no list of keys.
        """
        lines = list(_lines(path, _content(path)))
        names, keys = [name for name, _ in lines], [key for _, key in lines]
        if not lines:
            raise _bad_file(path, f"it has no key in it, expected {_FORM}")
        if len(set(names)) < len(names) or len(set(keys)) < len(keys):
            raise _bad_file(path, "a name or a key is in it twice")
        return cls(tuple((name, _digest(key.encode())) for name, key in lines))

    def find(self, key: bytes) -> str | None:
        """The name of `key`, or None; takes as long whether or not one is found."""
        found = None
        digest = _digest(key)
        for name, known in self.digests:
            if hmac.compare_digest(known, digest):
                found = name
        return found


def read_first_key(path: Path) -> str:
    """The first key of a key file, for a client's own use. Raises UsageError."""
    found = next(_lines(path, _content(path)), None)
    if found is None:
        raise _bad_file(path, f"it has no key in it, expected {_FORM}")
    return found[1]


def _content(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if mode & 0o077:
            raise UsageError(
                f"{path} can be read by others (mode {mode & 0o777:o}), expected 600.",
                hint=f"chmod 600 {shlex.quote(str(path))}",
            )
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise _bad_file(path, f"it is larger than {MAX_FILE_BYTES} bytes")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad_file(path, "it is not UTF-8") from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}.",
            hint='Make one: (umask 077; echo "me: $(openssl rand -hex 32)" > '
            f"{shlex.quote(str(path))})",
        ) from error


def _lines(path: Path, content: str) -> Iterator[tuple[str, str]]:
    """Names and keys; what a bad line holds is not told, because it may be a key."""
    for number, raw in enumerate(content.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None or len(found["key"]) < MIN_LENGTH:
            raise _bad_file(path, f"line {number} is no key, expected {_FORM}")
        yield found["name"], found["key"]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _bad_file(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path} cannot be used as a file of API keys: {reason}.",
        hint=f'Add a key: echo "me: $(openssl rand -hex 32)" >> {shlex.quote(str(path))}',
    )
