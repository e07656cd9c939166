"""Where a JSON value ends in a text that grows."""

from __future__ import annotations

_CLOSES = {"}": "{", "]": "["}


class JsonExtent:
    """Follows one JSON object or array by its strings and brackets; whether it is valid otherwise is not asked."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._in_string = False
        self._is_escaped = False
        self.is_done = False
        self.is_broken = False

    def feed(self, text: str) -> int:
        """How many characters of `text` belong to the value: all, or fewer once it is done or broken.

        Broken is a bracket that closes another kind than the last one opened; it does not belong to the value.
        """
        for at, character in enumerate(text):
            if self._in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif character == "\\":
                    self._is_escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._open.append(character)
            elif character in "}]":
                if not self._open or self._open.pop() != _CLOSES[character]:
                    self.is_broken = True
                    return at
                if not self._open:
                    self.is_done = True
                    return at + 1
        return len(text)
