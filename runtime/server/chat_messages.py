"""The messages of a request in the shapes that the model's template takes.

What is changed loses nothing, and a note says so:

* text parts of one message are joined, with nothing between them;
* `null` or missing content is empty text;
* a `developer` message is a `system` message where the template has no developer;
* the arguments of earlier tool calls, sent as JSON text, are an object where the template writes them out itself.

Everything else is refused by the name of its key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.server.chat_template import TemplateTraits

ROLES = ("system", "developer", "user", "assistant", "tool")
_PARTS = {
    "image_url": "an image",
    "input_image": "an image",
    "image": "an image",
    "input_audio": "audio",
    "video_url": "a video",
    "file": "a file",
    "refusal": "a refusal",
}
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


class MessageReader:
    """Reads the messages of one request; `notes` tells what was changed."""

    def __init__(self, traits: TemplateTraits) -> None:
        self._traits = traits
        self._changed: dict[str, list[int]] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each kind of change, with the numbers of the messages."""
        return tuple(
            f"{what} (messages {', '.join(str(index) for index in indices)})"
            for what, indices in self._changed.items()
        )

    def read(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The messages for the template, one for each of the request.

        Raises InvalidRequestError naming the message and the key.
        """
        if not messages:
            raise InvalidRequestError("messages is empty.", key="messages")
        return [self._message(index, message) for index, message in enumerate(messages)]

    def _message(self, index: int, message: Mapping[str, Any]) -> dict[str, Any]:
        where = f"messages[{index}]"
        role = message.get("role")
        if role not in ROLES:
            raise InvalidRequestError(
                f"{where}.role is {role!r}, expected one of {', '.join(ROLES)}.",
                key=f"{where}.role",
            )
        if role == "developer" and not self._traits.takes_developer:
            self._note("developer is read as system", index)
            role = "system"
        read = {key: value for key, value in message.items() if value is not None}
        read |= {"role": role, "content": self._content(index, message.get("content"))}
        if read.pop("tool_calls", None):
            read["tool_calls"] = self._calls(index, message["tool_calls"])
        if (reasoning := read.get("reasoning_content")) is not None:
            if not isinstance(reasoning, str):
                raise _wrong(f"{where}.reasoning_content", reasoning, "text")
            # Some templates know it by this name.
            read.setdefault("thinking", reasoning)
        _require_characters(where, read)
        return read

    def _content(self, index: int, content: object) -> str:
        if content is None:
            self._note("missing content is empty text", index)
            return ""
        if isinstance(content, str):
            return content
        where = f"messages[{index}].content"
        if not isinstance(content, Sequence):
            raise _wrong(where, content, "text or a list of text parts")
        texts = [_part_text(f"{where}[{at}]", part) for at, part in enumerate(content)]
        if len(texts) != 1:
            self._note("text parts are joined", index)
        return "".join(texts)

    def _calls(self, index: int, calls: object) -> list[dict[str, Any]]:
        where = f"messages[{index}].tool_calls"
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            raise _wrong(where, calls, "a list")
        return [self._call(index, f"{where}[{at}]", call) for at, call in enumerate(calls)]

    def _call(self, index: int, where: str, call: object) -> dict[str, Any]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping):
            raise _wrong(where, call, "an object with id, type and function")
        if not isinstance(function.get("name"), str):
            raise _wrong(f"{where}.function.name", function.get("name"), "text")
        arguments = self._arguments(index, f"{where}.function", function.get("arguments"))
        plain = {key: value for key, value in call.items() if value is not None}
        return {**plain, "function": {**function, "arguments": arguments}}

    def _arguments(self, index: int, where: str, arguments: object) -> object:
        key = f"{where}.arguments"
        if isinstance(arguments, Mapping):
            taken = self._traits.takes_argument_text
            return json.dumps(arguments, ensure_ascii=False) if taken else dict(arguments)
        if not isinstance(arguments, str):
            raise _wrong(key, arguments, "JSON text of an object")
        if self._traits.takes_argument_text:
            return arguments
        self._note("arguments of tool calls are an object", index)
        try:
            parsed = json.loads(arguments or "{}", strict=False)
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(
                f"{key} is not valid JSON ({error}), and the chat template needs an object.",
                key=key,
            ) from None
        if not isinstance(parsed, dict):
            raise _wrong(key, arguments, "JSON text of an object")
        return parsed

    def _note(self, what: str, index: int) -> None:
        indices = self._changed.setdefault(what, [])
        if index not in indices:
            indices.append(index)


def read_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The offered functions as they were sent. Raises InvalidRequestError for what is none."""
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, Mapping):
            raise InvalidRequestError(
                f"{where} is not a function; this server offers no other tools.",
                key=f"{where}.type",
            )
        name = function.get("name")
        key = f"{where}.function.name"
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            raise InvalidRequestError(
                f"{key} is {name!r}, expected 1 to 64 letters, digits, and any of _ . -", key=key
            )
        if name in seen:
            raise InvalidRequestError(f"{key}: {name!r} was offered before.", key=key)
        seen.add(name)
    return [dict(tool) for tool in tools]


def _part_text(where: str, part: object) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str):
        raise _wrong(where, part, "an object with a type")
    if kind in _TEXT_PARTS:
        text = part.get("text")
        if not isinstance(text, str):
            raise _wrong(f"{where}.text", text, "text")
        return text
    what = _PARTS.get(kind, f"a part of type {kind!r}")
    raise InvalidRequestError(
        f"{where} is {what}; this server takes text only.", key=f"{where}.type"
    )


def _require_characters(where: str, message: Mapping[str, Any]) -> None:
    """Half a surrogate pair can't be encoded, so no tokenizer takes it."""
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        broken = error.object[error.start : error.end]
        raise InvalidRequestError(
            f"{where} holds {broken!a}, half of a surrogate pair, which is no character.",
            key=where,
        ) from None


def _wrong(key: str, found: object, expected: str) -> InvalidRequestError:
    shown = repr(found)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return InvalidRequestError(f"{key} is {shown}, expected {expected}.", key=key)
