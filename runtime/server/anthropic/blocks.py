"""The content blocks that messages are made of. What only Anthropic's servers can do is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from mtplx.runtime.server.validation import LABEL, RequestPart, refuse, refused

_TEXT_ONLY: Final = "this server takes text only"
_NO_TOOLS: Final = "this server runs no tools"

_REFUSED: Final[Mapping[str, str]] = {
    "image": f"is an image; {_TEXT_ONLY}",
    "document": f"is a document; {_TEXT_ONLY}",
    "search_result": f"is a search result; {_TEXT_ONLY}",
    "browser_state": f"is the state of a browser; {_TEXT_ONLY}",
    "container_upload": f"is an upload to a container; {_TEXT_ONLY}",
    "redacted_thinking": "is encrypted thinking, which only the server that made it can read",
    "tool_reference": f"is a tool_reference; {_NO_TOOLS}, searching them among these",
    "server_tool_use": f"is a server_tool_use; {_NO_TOOLS}",
}


class CacheControl(RequestPart):
    """A place to cache up to. Without effect: prefixes are kept and found by themselves.

    `scope` is not in the public schema; Claude Code sends it.
    """

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"
    scope: str | None = None


def _no_citations(value: Any) -> None:
    if value:
        refuse("is not available here: nothing is cited")


class TextBlock(RequestPart):
    """Text."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: Annotated[None, BeforeValidator(_no_citations)] = None


class ThinkingBlock(RequestPart):
    """What the model thought in an earlier answer; the signature holds it where `thinking` is empty."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class DirectCaller(RequestPart):
    """The model itself called the tool."""

    type: Literal["direct"]


class ToolUseBlock(RequestPart):
    """A call of an earlier answer."""

    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: DirectCaller | None = None
    toolset_name: Annotated[None, refused("there are no toolsets")] = None


def _tag(value: Any) -> str:
    return LABEL + str(value["type"] if isinstance(value, Mapping) else value.type)


def _form(value: Any) -> str:
    return LABEL + ("text" if isinstance(value, str) else "blocks")


def _takes(*kinds: str) -> BeforeValidator:
    """Refuses blocks that are of none of these kinds."""

    def check(value: Any) -> Any:
        kind = value.get("type") if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping) or not isinstance(kind, str):
            refuse("is no content block: an object with a type is expected")
        if kind not in kinds:
            if kind.endswith("_tool_result"):
                refuse(f"is a {kind}; {_NO_TOOLS}")
            known = f"is a block of type {kind!r}; expected here: {', '.join(kinds)}"
            refuse(_REFUSED.get(kind, known))
        return value

    return BeforeValidator(check)


TextOnly = Annotated[TextBlock, _takes("text")]
TextContent = Annotated[
    Annotated[str, Tag(f"{LABEL}text")] | Annotated[list[TextOnly], Tag(f"{LABEL}blocks")],
    Discriminator(_form),
]
"""Text, or blocks of text."""


class ToolResultBlock(RequestPart):
    """What a tool gave back."""

    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1)]
    content: TextContent = ""
    is_error: bool = False
    cache_control: CacheControl | None = None
    toolset_name: Annotated[None, refused("there are no toolsets")] = None


UserBlock = Annotated[
    Annotated[
        Annotated[TextBlock, Tag(f"{LABEL}text")]
        | Annotated[ToolResultBlock, Tag(f"{LABEL}tool_result")],
        Discriminator(_tag),
    ],
    _takes("text", "tool_result"),
]
AssistantBlock = Annotated[
    Annotated[
        Annotated[TextBlock, Tag(f"{LABEL}text")]
        | Annotated[ThinkingBlock, Tag(f"{LABEL}thinking")]
        | Annotated[ToolUseBlock, Tag(f"{LABEL}tool_use")],
        Discriminator(_tag),
    ],
    _takes("text", "thinking", "tool_use"),
]
UserContent = Annotated[
    Annotated[str, Tag(f"{LABEL}text")] | Annotated[list[UserBlock], Tag(f"{LABEL}blocks")],
    Discriminator(_form),
]
AssistantContent = Annotated[
    Annotated[str, Tag(f"{LABEL}text")] | Annotated[list[AssistantBlock], Tag(f"{LABEL}blocks")],
    Discriminator(_form),
]


def blocks_of(content: str | list[Any]) -> list[Any]:
    """The blocks of a content; text alone is one block of it."""
    return [TextBlock(type="text", text=content)] if isinstance(content, str) else content
