"""The messages of a chat completion: what they may hold. The chat template gets them as they were sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from mtplx.runtime.server.openai.tools import tag_of
from mtplx.runtime.server.validation import LABEL, RequestPart, refuse, refused

_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_NOT_TEXT: Final[Mapping[str, str]] = {
    "image_url": "an image",
    "input_image": "an image",
    "input_audio": "audio",
    "video_url": "a video",
    "file": "a file",
    "input_file": "a file",
    "refusal": "a refusal",
}


class CacheBreakpoint(RequestPart):
    """A place to cache up to. Without effect: prefixes are kept and found by themselves."""

    mode: Literal["explicit"]
    ttl: Literal["30m", "12h"] | None = None


def only_parts(*kinds: str) -> BeforeValidator:
    """Refuses content parts that are of none of these kinds."""

    def check(value: Any) -> Any:
        kind = value.get("type") if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping) or not isinstance(kind, str):
            refuse("is no content part: an object with a type is expected")
        if kind not in kinds:
            what = _NOT_TEXT.get(kind, f"a part of type {kind[:60]!r}")
            refuse(f"is {what}; this server takes text only, in parts of type {', '.join(kinds)}")
        return value

    return BeforeValidator(check)


def form_of(value: Any) -> str:
    """Tells text from a list of parts."""
    return LABEL + ("text" if isinstance(value, str) else "parts")


class TextPart(RequestPart):
    """A piece of text; the pieces of one message are joined with nothing between them."""

    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: CacheBreakpoint | None = None


Content = Annotated[
    Annotated[str, Tag(f"{LABEL}text")]
    | Annotated[list[Annotated[TextPart, only_parts("text")]], Tag(f"{LABEL}parts")],
    Discriminator(form_of),
]


class SystemMessage(RequestPart):
    """Instructions."""

    role: Literal["system"]
    content: Content
    name: str | None = None


class DeveloperMessage(SystemMessage):
    """Instructions; those of the system where the template knows no developer."""

    role: Literal["developer"]  # type: ignore[assignment]  # another tag of the same union


class UserMessage(SystemMessage):
    """What the user said."""

    role: Literal["user"]  # type: ignore[assignment]  # another tag of the same union


class CalledFunction(RequestPart):
    """A function, and the JSON text of its arguments."""

    name: Annotated[str, Field(min_length=1)]
    arguments: str


def _only_functions(value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("type", "function") != "function":
        refuse(f"is of type {str(value['type'])[:60]!r}, expected function")
    return value


class ToolCall(RequestPart):
    """A call of an earlier answer. `index` is what streams number calls by, and without effect."""

    id: Annotated[str, Field(min_length=1)]
    type: Literal["function"]
    function: CalledFunction
    index: int | None = None


def _nothing(value: Any) -> None:
    if value:
        refuse("is not available here: nothing is cited")


class AssistantMessage(RequestPart):
    """An earlier answer. `reasoning_content` is what the model thought; the template may leave it out."""

    role: Literal["assistant"]
    content: Content | None = None
    reasoning_content: str | None = None
    tool_calls: list[Annotated[ToolCall, BeforeValidator(_only_functions)]] | None = None
    name: str | None = None
    refusal: Annotated[None, refused("nothing is refused, so no answer holds one")] = None
    audio: Annotated[None, refused("this server takes text only")] = None
    function_call: Annotated[None, refused("send tool_calls")] = None
    annotations: Annotated[None, BeforeValidator(_nothing)] = None


class ToolMessage(RequestPart):
    """What a tool gave back."""

    role: Literal["tool"]
    content: Content
    tool_call_id: Annotated[str, Field(min_length=1)]
    name: str | None = None


def _known_role(value: Any) -> Any:
    if not isinstance(value, Mapping) or value.get("role") not in _ROLES:
        refuse(f"is no message: expected an object with a role, one of {', '.join(_ROLES)}")
    return value


Message = Annotated[
    Annotated[
        Annotated[SystemMessage, Tag(f"{LABEL}system")]
        | Annotated[DeveloperMessage, Tag(f"{LABEL}developer")]
        | Annotated[UserMessage, Tag(f"{LABEL}user")]
        | Annotated[AssistantMessage, Tag(f"{LABEL}assistant")]
        | Annotated[ToolMessage, Tag(f"{LABEL}tool")],
        Discriminator(tag_of("role")),
    ],
    BeforeValidator(_known_role),
]
