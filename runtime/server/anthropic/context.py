"""Edits of a conversation that a request asks for: thinking of earlier turns is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from mtplx.runtime.server.anthropic.blocks import ThinkingBlock, ToolResultBlock, blocks_of
from mtplx.runtime.server.anthropic.schema_messages import AssistantMessage, Message, UserMessage
from mtplx.runtime.server.validation import RequestPart, refuse

CLEAR_THINKING: Final = "clear_thinking_20251015"


class ThinkingTurns(RequestPart):
    """So many turns of the assistant, counted from the end, keep their thinking."""

    type: Literal["thinking_turns"]
    value: Annotated[int, Field(ge=1)]


class AllTurns(RequestPart):
    """All turns keep their thinking."""

    type: Literal["all"]


def _known_edit(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind != CLEAR_THINKING:
        refuse(f"is of type {str(kind)[:60]!r}; of all edits {CLEAR_THINKING} alone is done here")
    return value


class ClearThinking(RequestPart):
    """Leave out what the model thought in earlier turns."""

    type: Literal["clear_thinking_20251015"]
    keep: ThinkingTurns | AllTurns | Literal["all"] = ThinkingTurns(type="thinking_turns", value=1)

    @property
    def turns(self) -> int | None:
        """How many turns keep their thinking, None for all."""
        return self.keep.value if isinstance(self.keep, ThinkingTurns) else None


class ContextManagement(RequestPart):
    """Edits, done in their order."""

    edits: list[Annotated[ClearThinking, BeforeValidator(_known_edit)]] = Field(
        default_factory=list
    )


class Edited(NamedTuple):
    """The messages after an edit, and how many turns lost their thinking."""

    messages: list[Message]
    cleared_turns: int


def clear_thinking(messages: Sequence[Message], keep: int | None) -> Edited:
    """`messages` without the thinking of all turns but the last `keep` that have some; None keeps all.

    A turn lasts from what the user says to the next time; results of tools are within one.
    """
    turns = list(_turns(messages))
    thoughtful = sorted({turn for turn, message in turns if _has_thinking(message)})
    cleared = set() if keep is None else set(thoughtful[:-keep])
    edited = [_without_thinking(m) if turn in cleared else m for turn, m in turns]
    return Edited(edited, len(cleared))


def _turns(messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """Each message with the number of its turn."""
    turn = 0
    for message in messages:
        if isinstance(message, UserMessage):
            blocks = blocks_of(message.content)
            turn += not all(isinstance(block, ToolResultBlock) for block in blocks)
        yield turn, message


def _has_thinking(message: Message) -> bool:
    blocks = blocks_of(message.content)
    return any(isinstance(block, ThinkingBlock) for block in blocks)


def _without_thinking(message: Message) -> Message:
    if not isinstance(message, AssistantMessage) or not _has_thinking(message):
        return message
    kept = [block for block in message.content if not isinstance(block, ThinkingBlock)]
    return message.model_copy(update={"content": kept or ""})
