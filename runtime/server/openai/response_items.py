"""The items that the input of a response may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from mtplx.runtime.server.openai.messages import CacheBreakpoint, form_of, only_parts
from mtplx.runtime.server.openai.tools import tag_of
from mtplx.runtime.server.validation import LABEL, RequestPart, refuse, refused

_ROLES: Final = ("system", "developer", "user", "assistant")
_ONE_PROVIDER: Final = "functions have no namespaces here"

Status = Literal["in_progress", "completed", "incomplete"]


def _nothing(value: Any) -> Any:
    if value:
        refuse("is not available here: nothing is cited")
    return value


class InputText(RequestPart):
    """A piece of what was said to the model."""

    type: Literal["input_text"]
    text: str
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class OutputText(RequestPart):
    """A piece of an earlier answer. `logprobs` are without effect."""

    type: Literal["output_text"]
    text: str
    annotations: Annotated[list[Any] | None, BeforeValidator(_nothing)] = None
    logprobs: list[Any] | None = None


TextPart = Annotated[
    Annotated[InputText, Tag(f"{LABEL}input_text")]
    | Annotated[OutputText, Tag(f"{LABEL}output_text")],
    Discriminator(tag_of("type")),
]
Content = Annotated[
    Annotated[str, Tag(f"{LABEL}text")]
    | Annotated[
        list[Annotated[TextPart, only_parts("input_text", "output_text")]], Tag(f"{LABEL}parts")
    ],
    Discriminator(form_of),
]


class Message(RequestPart):
    """Something that was said. `id`, `status` and `phase` are those of an earlier answer, and without effect."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCall(RequestPart):
    """A call of an earlier answer; `arguments` are JSON text."""

    type: Literal["function_call"]
    call_id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    arguments: str
    id: str | None = None
    status: Status | None = None
    caller: Annotated[None, refused("clients alone run functions")] = None
    namespace: Annotated[None, refused(_ONE_PROVIDER)] = None
    is_async: Annotated[
        Literal[False] | None, Field(alias="async", description="Calls are answered in turn.")
    ] = None


class FunctionCallOutput(RequestPart):
    """What a function gave back."""

    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(min_length=1)]
    output: Content
    name: str | None = None
    id: str | None = None
    status: Status | None = None
    caller: Annotated[None, refused("clients alone run functions")] = None
    namespace: Annotated[None, refused(_ONE_PROVIDER)] = None


class ReasoningText(RequestPart):
    """A piece of what the model thought."""

    type: Literal["reasoning_text"]
    text: str


class SummaryText(RequestPart):
    """A piece of a summary, as other servers make them."""

    type: Literal["summary_text"]
    text: str


class Reasoning(RequestPart):
    """What the model thought before an earlier answer: its text, or the text sealed. A summary is not read."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[SummaryText] = Field(default_factory=list)
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


_KINDS: Final = ("message", "function_call", "function_call_output", "reasoning")


def _known(value: Any) -> Any:
    """Refuse items of other types by these, and tell messages without a type by their role."""
    if not isinstance(value, Mapping):
        refuse("is no item: an object with a type is expected")
    kind = value.get("type", "message" if "role" in value else None)
    if kind not in _KINDS:
        refuse(f"is of type {str(kind)[:60]!r}, expected one of {', '.join(_KINDS)}")
    if kind == "message" and value.get("role") not in _ROLES:
        refuse(f"has the role {str(value.get('role'))[:60]!r}, expected one of {', '.join(_ROLES)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return LABEL + str(value.get("type", "message"))
    return LABEL + str(value.type)


Item = Annotated[
    Annotated[
        Annotated[Message, Tag(f"{LABEL}message")]
        | Annotated[FunctionCall, Tag(f"{LABEL}function_call")]
        | Annotated[FunctionCallOutput, Tag(f"{LABEL}function_call_output")]
        | Annotated[Reasoning, Tag(f"{LABEL}reasoning")],
        Discriminator(_kind),
    ],
    BeforeValidator(_known),
]


def text_of(content: str | list[InputText | OutputText]) -> str:
    """The text of content; parts are joined with nothing between them."""
    return content if isinstance(content, str) else "".join(part.text for part in content)
