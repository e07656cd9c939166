"""How much a request wants the model to think, in the words of its chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.server.chat_template import ChatTemplate
from mtplx.runtime.server.served import ServedModel

_EFFORT: Final = "reasoning_effort"


class Thought(NamedTuple):
    """Whether to think (None leaves it to the template), the template's variables, and what had no effect."""

    is_enabled: bool | None
    variables: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def read_thinking(
    model: ServedModel,
    tools: Sequence[Mapping[str, Any]],
    *,
    effort: str | None,
    key: str,
    enabled: bool | None = None,
    variables: Mapping[str, Any] | None = None,
) -> Thought:
    """What `effort`, which the request has at `key`, asks for beside the other two.

    Raises InvalidRequestError where they contradict each other.
    """
    given = dict(variables or {})
    if effort is None:
        return Thought(enabled, given)
    if enabled is not None and enabled != (effort != "none"):
        raise InvalidRequestError(
            f"{key} is {effort!r}, which enable_thinking contradicts.", key=key
        )
    if given.get(_EFFORT, effort) != effort:
        raise InvalidRequestError(
            f"{key} is {effort!r}, which chat_template_kwargs.{_EFFORT} contradicts.", key=key
        )
    known = ChatTemplate(model.tokenizer).variables(tools)
    if known is not None and _EFFORT in known:
        return Thought(enabled, {**given, _EFFORT: effort})
    if effort == "none":
        return Thought(False, given)
    note = f"{key} has no effect: the chat template of {model.name} does not read it"
    return Thought(enabled, given, (note,))
