"""What a request says of its tools, of thinking and of the form of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from mtplx.runtime.server.anthropic.blocks import CacheControl
from mtplx.runtime.server.validation import LABEL, RequestPart, refuse, refused

_MIN_BUDGET: Final = 1024
_NOT_CHECKED: Final = "thinking that comes back is not checked"


def _only_direct(value: Any) -> Any:
    if value not in (None, ["direct"]):
        refuse("is not available here: the model itself is the only caller of tools")
    return value


def _no_examples(value: Any) -> None:
    if value:
        refuse("is not available here: chat templates have no place for examples")


def _not_deferred(value: Any) -> Any:
    if value is True:
        refuse("is not available here: there is no search for tools, so all are offered at once")
    return value


class Tool(RequestPart):
    """A tool that the client runs. `strict` holds the arguments to the schema by a grammar."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool = False
    cache_control: CacheControl | None = None
    eager_input_streaming: bool | None = None
    defer_loading: Annotated[bool, BeforeValidator(_not_deferred)] = False
    allowed_callers: Annotated[list[str] | None, BeforeValidator(_only_direct)] = None
    input_examples: Annotated[None, BeforeValidator(_no_examples)] = None


def _custom(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if isinstance(kind, str) and kind != "custom":
        refuse(
            f"is of type {kind!r}, which only Anthropic's models and servers know; "
            "offer a custom tool with an input_schema"
        )
    return value


AnyTool = Annotated[Tool, BeforeValidator(_custom)]


class ChoiceAuto(RequestPart):
    """The model decides."""

    type: Literal["auto"]
    disable_parallel_tool_use: bool = False


class ChoiceAny(RequestPart):
    """Some tool must be called."""

    type: Literal["any"]
    disable_parallel_tool_use: bool = False


class ChoiceTool(RequestPart):
    """This tool must be called."""

    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False


class ChoiceNone(RequestPart):
    """No tool is called."""

    type: Literal["none"]


Display = Literal["summarized", "omitted"] | None
"""Thinking is shown whole, never summarised; omitted, it is only in the block's signature."""


class ThinkingEnabled(RequestPart):
    """Think. The budget is checked and without effect: thinking ends by itself, or with `max_tokens`."""

    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=_MIN_BUDGET)]
    display: Display = None
    block_binding: Annotated[None, refused(_NOT_CHECKED)] = None


class ThinkingAdaptive(RequestPart):
    """Think as the model's template has it."""

    type: Literal["adaptive"]
    display: Display = None
    block_binding: Annotated[None, refused(_NOT_CHECKED)] = None


class ThinkingDisabled(RequestPart):
    """Do not think."""

    type: Literal["disabled"]


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return f"{LABEL}{kind}"


def _one_of(*kinds: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping) or value.get("type") not in kinds:
            found = value.get("type") if isinstance(value, Mapping) else value
            refuse(f"is of type {str(found)[:40]!r}, expected an object of type {', '.join(kinds)}")
        return value

    return BeforeValidator(check)


ToolChoice = Annotated[
    Annotated[
        Annotated[ChoiceAuto, Tag(f"{LABEL}auto")]
        | Annotated[ChoiceAny, Tag(f"{LABEL}any")]
        | Annotated[ChoiceTool, Tag(f"{LABEL}tool")]
        | Annotated[ChoiceNone, Tag(f"{LABEL}none")],
        Discriminator(_kind),
    ],
    _one_of("auto", "any", "tool", "none"),
]
ThinkingConfig = Annotated[
    Annotated[
        Annotated[ThinkingEnabled, Tag(f"{LABEL}enabled")]
        | Annotated[ThinkingAdaptive, Tag(f"{LABEL}adaptive")]
        | Annotated[ThinkingDisabled, Tag(f"{LABEL}disabled")],
        Discriminator(_kind),
    ],
    _one_of("enabled", "adaptive", "disabled"),
]


class JsonFormat(RequestPart):
    """JSON of a schema, held by a grammar."""

    type: Literal["json_schema"]
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(RequestPart):
    """The form of the answer. `effort` reaches the model where its chat template reads `reasoning_effort`."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None
    task_budget: Annotated[None, refused("only max_tokens bounds an answer")] = None
