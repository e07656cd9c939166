"""From the messages of this API to the conversation that chat templates take, in OpenAI's shape.

The order of messages stays. Of what a message holds, these go to another place, and where that says less a note tells:

* text blocks of one message are joined, with nothing between them;
* each tool result is a message of its own, of the role `tool`; text beside it is a message of the user;
* text of an assistant that stands behind its tool calls stands before them, as templates have one text for a message;
* `is_error` has no place in templates, so the model knows of an error by the result's text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.server.anthropic.blocks import (
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    blocks_of,
)
from mtplx.runtime.server.anthropic.schema_messages import AssistantMessage, Message, UserMessage
from mtplx.runtime.server.sealing import unseal


@dataclass(slots=True)
class Messages:
    """Messages for a template. `places` are the keys of the request that each of them was made of."""

    said: list[dict[str, Any]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    changes: dict[str, list[str]] = field(default_factory=dict)

    def add(self, place: str, message: dict[str, Any]) -> None:
        """One more message."""
        self.said.append(message)
        self.places.append(place)

    def note(self, what: str, place: str) -> None:
        """Something was put otherwise than it was sent."""
        self.changes.setdefault(what, []).append(place)

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each kind of change, with the keys that it was done to."""
        return tuple(f"{what} ({', '.join(places)})" for what, places in self.changes.items())


def read_messages(system: str | list[TextBlock] | None, messages: Sequence[Message]) -> Messages:
    """The messages of a request.

    Raises InvalidRequestError for a conversation that does not end with the user, an empty message, a tool result
    without its call, and thinking whose signature is damaged.
    """
    reader = _Reader()
    if system:
        reader.read.add(
            "system", {"role": "system", "content": reader.text("system", blocks_of(system))}
        )
    for index, message in enumerate(messages):
        reader.take(f"messages[{index}]", message)
    last = len(messages) - 1
    if messages[last].role == "assistant":
        raise InvalidRequestError(
            f"messages[{last}] is of the assistant: an answer that was begun is not continued here.",
            key=f"messages[{last}].role",
            hint="End the conversation with a message of the user.",
        )
    return reader.read


class _Reader:
    """Takes one message after the other, and knows the tool calls so far."""

    def __init__(self) -> None:
        self.read = Messages()
        self._names: dict[str, str] = {}

    def text(self, place: str, blocks: Sequence[TextBlock]) -> str:
        if len(blocks) > 1:
            self.read.note("text blocks are joined", place)
        return "".join(block.text for block in blocks)

    def take(self, place: str, message: Message) -> None:
        blocks = blocks_of(message.content)
        if not blocks:
            raise InvalidRequestError(f"{place}.content is empty.", key=f"{place}.content")
        if isinstance(message, UserMessage):
            self._user(place, blocks)
        elif isinstance(message, AssistantMessage):
            self._assistant(place, blocks)
        else:
            self.read.add(place, {"role": "system", "content": self.text(place, blocks)})

    def _user(self, place: str, blocks: Sequence[TextBlock | ToolResultBlock]) -> None:
        texts: list[TextBlock] = []
        for index, block in enumerate(blocks):
            if isinstance(block, TextBlock):
                texts.append(block)
                continue
            self._end_text(place, texts)
            self._result(f"{place}.content[{index}]", block)
        self._end_text(place, texts)

    def _end_text(self, place: str, texts: list[TextBlock]) -> None:
        if texts:
            self.read.add(place, {"role": "user", "content": self.text(place, texts)})
            texts.clear()

    def _result(self, place: str, block: ToolResultBlock) -> None:
        name = self._names.get(block.tool_use_id)
        if name is None:
            raise InvalidRequestError(
                f"{place}.tool_use_id is {block.tool_use_id[:80]!r}, and no tool_use before it has this id.",
                key=f"{place}.tool_use_id",
            )
        if block.is_error:
            self.read.note("is_error is not told to the model, the text of the result is", place)
        self.read.add(
            place,
            {
                "role": "tool",
                "tool_call_id": block.tool_use_id,
                "name": name,
                "content": self.text(place, blocks_of(block.content)),
            },
        )

    def _assistant(
        self, place: str, blocks: Sequence[TextBlock | ThinkingBlock | ToolUseBlock]
    ) -> None:
        texts = [block for block in blocks if isinstance(block, TextBlock)]
        calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
        message: dict[str, Any] = {"role": "assistant", "content": self.text(place, texts)}
        if thought := _thinking(place, blocks):
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = [_call(block) for block in calls]
            first = blocks.index(calls[0])
            if any(isinstance(block, TextBlock) for block in blocks[first:]):
                self.read.note("text behind tool calls stands before them", place)
        self._names |= {block.id: block.name for block in calls}
        self.read.add(place, message)


def _thinking(place: str, blocks: Sequence[Any]) -> str:
    thought = ""
    for index, block in enumerate(blocks):
        if isinstance(block, ThinkingBlock):
            try:
                thought += unseal(block.thinking, block.signature)
            except ValueError as error:
                key = f"{place}.content[{index}].signature"
                raise InvalidRequestError(f"{key}: {error}.", key=key) from None
    return thought


def _call(block: ToolUseBlock) -> dict[str, Any]:
    function = {"name": block.name, "arguments": block.input}
    return {"id": block.id, "type": "function", "function": function}
