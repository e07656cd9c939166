"""The messages of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag

from mtplx.runtime.server.anthropic.blocks import AssistantContent, TextContent, UserContent
from mtplx.runtime.server.validation import LABEL, RequestPart, refuse, refused

_ROLES = ("user", "assistant", "system")


class UserMessage(RequestPart):
    """What the user said, and what tools gave back."""

    role: Literal["user"]
    content: UserContent


class AssistantMessage(RequestPart):
    """An earlier answer."""

    role: Literal["assistant"]
    content: AssistantContent


class SystemMessage(RequestPart):
    """Instructions in mid-conversation, for models whose chat template takes them there."""

    role: Literal["system"]
    content: TextContent
    clear_at: Literal["never"] | None = None
    output_config: Annotated[None, refused("an answer has one form")] = None


def _role(value: Any) -> str:
    return LABEL + str(value["role"] if isinstance(value, Mapping) else value.role)


def _known_role(value: Any) -> Any:
    if not isinstance(value, Mapping) or value.get("role") not in _ROLES:
        refuse(f"is no message: expected an object with a role, one of {', '.join(_ROLES)}")
    return value


Message = Annotated[
    Annotated[
        Annotated[UserMessage, Tag(f"{LABEL}user")]
        | Annotated[AssistantMessage, Tag(f"{LABEL}assistant")]
        | Annotated[SystemMessage, Tag(f"{LABEL}system")],
        Discriminator(_role),
    ],
    BeforeValidator(_known_role),
]
