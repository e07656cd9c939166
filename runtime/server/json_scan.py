"""The shape of a JSON text while its bytes arrive: how deep it is nested, and how many values it has."""

from __future__ import annotations

import re
from typing import Final

from mtplx.contracts.errors import InvalidRequestError

# Outside of strings these alone matter: brackets nest, commas and brackets begin values, a quote begins a string.
_MARK: Final = re.compile(rb'[\[\]{},"]')

# Inside of a string: all bytes up to its end, to the end of what has arrived, or to a backslash there.
# Possessive, so that nothing is remembered for each escape.
_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)

_OPENING: Final = b"[{"
_CLOSING: Final = b"]}"


class JsonScan:
    """Counts along with bytes that need not be a whole text, nor JSON at all.

    What is no JSON is left to the parser; this only bounds what the parser is given.
    """

    def __init__(self, *, max_depth: int, max_values: int) -> None:
        self._max_depth = max_depth
        self._max_values = max_values
        self._depth = 0
        self._values = 0
        self._is_in_string = False
        self._is_escaped = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            InvalidRequestError: the text is nested too deeply or has too many values.
        """
        at = 0
        while at < len(chunk):
            at = self._skip_string(chunk, at) if self._is_in_string else self._step(chunk, at)

    def _step(self, chunk: bytes, at: int) -> int:
        """Take everything up to and with the next mark; returns where to go on."""
        found = _MARK.search(chunk, at)
        if found is None:
            return len(chunk)
        mark = found.group()
        if mark == b'"':
            self._is_in_string = True
        elif mark in _CLOSING:
            self._depth -= 1
        else:
            self._count(is_deeper=mark in _OPENING)
        return found.end()

    def _count(self, *, is_deeper: bool) -> None:
        self._values += 1
        self._depth += is_deeper
        if self._depth > self._max_depth:
            raise InvalidRequestError(
                f"the body is nested deeper than {self._max_depth} levels.", key="body"
            )
        if self._values > self._max_values:
            raise InvalidRequestError(
                f"the body has more than {self._max_values} values.", key="body"
            )

    def _skip_string(self, chunk: bytes, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            at += 1
        found = _STRING.match(chunk, at)
        at = at if found is None else found.end()
        if at >= len(chunk):
            return at
        # Only a quote or a backslash that is the last byte can end the match.
        self._is_in_string = chunk[at : at + 1] != b'"'
        self._is_escaped = self._is_in_string
        return at + 1
