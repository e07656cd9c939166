"""The tools that a request offers, and which of them the model may call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from mtplx.runtime.server.validation import LABEL, RequestPart, refuse


class Function(RequestPart):
    """A function that the client runs. `strict` holds the arguments to the schema by a grammar."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


def function_only(value: Any) -> Any:
    """Refuse tools that are no functions, by their type."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(kind, str):
        refuse("is no tool: an object with a type is expected")
    if kind != "function":
        refuse(f"is of type {kind[:60]!r}; this server runs no tools, so offer a function")
    return value


class FunctionTool(RequestPart):
    """A tool of a chat completion."""

    type: Literal["function"]
    function: Function


Tool = Annotated[FunctionTool, BeforeValidator(function_only)]


class FunctionName(RequestPart):
    """A function by its name."""

    name: str


class NamedFunction(RequestPart):
    """This function must be called."""

    type: Literal["function"]
    function: FunctionName


class ResponseNamedFunction(RequestPart):
    """This function must be called, as `/v1/responses` has it."""

    type: Literal["function"]
    name: str


def _form(value: Any) -> str:
    return LABEL + ("word" if isinstance(value, str) else "object")


def _known_choice(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if isinstance(value, Mapping) and kind != "function":
        refuse(f"is of type {str(kind)[:60]!r}; expected a function, or auto, none or required")
    if not isinstance(value, str | Mapping):
        refuse("is no choice; expected auto, none, required or an object naming a function")
    return value


_Word = Annotated[Literal["auto", "none", "required"], Tag(f"{LABEL}word")]

ToolChoice = Annotated[
    Annotated[
        _Word | Annotated[NamedFunction, Tag(f"{LABEL}object")],
        Discriminator(_form),
    ],
    BeforeValidator(_known_choice),
]
ResponseToolChoice = Annotated[
    Annotated[
        _Word | Annotated[ResponseNamedFunction, Tag(f"{LABEL}object")],
        Discriminator(_form),
    ],
    BeforeValidator(_known_choice),
]


class TextFormat(RequestPart):
    """Text without a form."""

    type: Literal["text"]


class JsonObjectFormat(RequestPart):
    """Some JSON object, held by a grammar."""

    type: Literal["json_object"]


class JsonSchema(RequestPart):
    """A schema; a grammar holds it, whether `strict` is true or not."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


class JsonSchemaFormat(RequestPart):
    """JSON of a schema, in a chat completion."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class ResponseJsonSchemaFormat(JsonSchema):
    """JSON of a schema, in a response."""

    type: Literal["json_schema"]


def _known_format(value: Any) -> Any:
    kinds = ("text", "json_object", "json_schema")
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind not in kinds:
        refuse(f"is of type {str(kind)[:60]!r}, expected an object of type {', '.join(kinds)}")
    return value


def tag_of(key: str) -> Callable[[Any], str]:
    """What tells the members of a union apart: the value of `key`."""

    def tag(value: Any) -> str:
        return f"{LABEL}{value[key] if isinstance(value, Mapping) else getattr(value, key)}"

    return tag


ResponseFormat = Annotated[
    Annotated[
        Annotated[TextFormat, Tag(f"{LABEL}text")]
        | Annotated[JsonObjectFormat, Tag(f"{LABEL}json_object")]
        | Annotated[JsonSchemaFormat, Tag(f"{LABEL}json_schema")],
        Discriminator(tag_of("type")),
    ],
    BeforeValidator(_known_format),
]
ResponseTextFormat = Annotated[
    Annotated[
        Annotated[TextFormat, Tag(f"{LABEL}text")]
        | Annotated[JsonObjectFormat, Tag(f"{LABEL}json_object")]
        | Annotated[ResponseJsonSchemaFormat, Tag(f"{LABEL}json_schema")],
        Discriminator(tag_of("type")),
    ],
    BeforeValidator(_known_format),
]
