"""From the items of a response's input to the conversation that chat templates take.

The order of items stays. Of what they hold, these go to another place, and where that says less a note tells:

* `instructions`, and messages of the roles `system` and `developer` that stand right behind them, are one system
  message with a blank line between, because templates have one;
* what the model thought, its text and its calls are one message of the assistant, where they stand in this order;
* summaries of thinking, and what another server encrypted, are not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.server.openai.response_items import (
    FunctionCall,
    FunctionCallOutput,
    Message,
    Reasoning,
    text_of,
)
from mtplx.runtime.server.sealing import unseal

_MESSAGE: Final = re.compile(r"messages\[(\d+)\]")
# The keys of a conversation in the shape of chat completions, and those of this API that they come from.
_KEYS: Final = (
    (re.compile(r"tools\[(\d+)\]\.function"), r"tools[\1]"),
    (re.compile(r"tool_choice\.function"), "tool_choice"),
    (re.compile(r"response_format\.json_schema"), "text.format"),
    (re.compile(r"response_format"), "text.format"),
    (re.compile(r"chat_template_kwargs\.reasoning_effort"), "reasoning.effort"),
    (re.compile(r"enable_thinking"), "reasoning.effort"),
)


@dataclass(slots=True)
class Conversed:
    """Messages for a template. `places` are the keys of the request that each of them was made of."""

    said: list[dict[str, Any]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, place: str, message: dict[str, Any]) -> None:
        """One more message."""
        self.said.append(message)
        self.places.append(place)

    def note(self, text: str) -> None:
        """Something was put otherwise than it was sent; told once."""
        if text not in self.notes:
            self.notes.append(text)

    def in_our_keys(self, error: InvalidRequestError) -> InvalidRequestError:
        """`error`, which is about these messages, with the keys of the request."""
        key = error.key
        if found := _MESSAGE.match(key):
            key = self.places[int(found[1])] + key[found.end() :]
        for pattern, ours in _KEYS:
            key = pattern.sub(ours, key)
        return InvalidRequestError(error.message.replace(error.key, key), key=key, hint=error.hint)


def converse(
    instructions: str | None,
    given: str | Sequence[Message | FunctionCall | FunctionCallOutput | Reasoning],
) -> Conversed:
    """The messages of a request.

    Raises InvalidRequestError for a result without its call and thinking whose seal is damaged.
    """
    reader = _Reader()
    if instructions:
        reader.read.add("instructions", {"role": "system", "content": instructions})
    if isinstance(given, str):
        reader.read.add("input", {"role": "user", "content": given})
        return reader.read
    for index, item in enumerate(given):
        reader.take(f"input[{index}]", item)
    return reader.read


class _Reader:
    """Takes one item after the other, and knows the calls so far."""

    def __init__(self) -> None:
        self.read = Conversed()
        self._names: dict[str, str] = {}

    def take(
        self, place: str, item: Message | FunctionCall | FunctionCallOutput | Reasoning
    ) -> None:
        match item:
            case Message(role="assistant"):
                # A text behind other text is another message.
                self._answer(place, {"content", "tool_calls"})["content"] = text_of(item.content)
            case Message():
                self._message(place, item)
            case Reasoning():
                self._reasoning(place, item)
            case FunctionCall():
                self._names[item.call_id] = item.name
                self._answer(place, set()).setdefault("tool_calls", []).append(_call(item))
            case FunctionCallOutput():
                self._result(place, item)

    def _reasoning(self, place: str, item: Reasoning) -> None:
        thought = _thought(place, item)
        if thought:
            message = self._answer(place, {"content", "tool_calls", "reasoning_content"})
            message["reasoning_content"] = thought
        elif item.encrypted_content:
            self.read.note("reasoning that another server encrypted is not read")
        elif item.summary:
            self.read.note("summaries of reasoning are not read")

    def _answer(self, place: str, taken: set[str]) -> dict[str, Any]:
        """The assistant's message to go on with; another where the last one has one of the keys in `taken`."""
        last = self.read.said[-1] if self.read.said else {}
        if last.get("role") != "assistant" or taken & last.keys():
            self.read.add(place, {"role": "assistant"})
        return self.read.said[-1]

    def _message(self, place: str, item: Message) -> None:
        text = text_of(item.content)
        is_instruction = item.role in ("system", "developer")
        if is_instruction and [message["role"] for message in self.read.said] == ["system"]:
            first = self.read.said[0]
            first["content"] = f"{first['content']}\n\n{text}"
            self.read.note("instructions and the system's first messages are one message")
            return
        self.read.add(place, {"role": item.role, "content": text})

    def _result(self, place: str, item: FunctionCallOutput) -> None:
        name = self._names.get(item.call_id)
        if name is None:
            key = f"{place}.call_id"
            raise InvalidRequestError(
                f"{key} is {item.call_id[:80]!r}, and no function_call before it has this id.",
                key=key,
            )
        self.read.add(
            place,
            {
                "role": "tool",
                "tool_call_id": item.call_id,
                "name": name,
                "content": text_of(item.output),
            },
        )


def _thought(place: str, item: Reasoning) -> str:
    shown = "".join(part.text for part in item.content or ())
    try:
        return unseal(shown, item.encrypted_content or "")
    except ValueError:
        key = f"{place}.encrypted_content"
        raise InvalidRequestError(f"{key} is damaged.", key=key) from None


def _call(item: FunctionCall) -> dict[str, Any]:
    function = {"name": item.name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}
