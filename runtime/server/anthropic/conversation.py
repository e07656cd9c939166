"""What a request asks of the model: the conversation in OpenAI's shape, and its prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.server.anthropic.context import CLEAR_THINKING, ContextManagement, clear_thinking
from mtplx.runtime.server.anthropic.messages import Messages, read_messages
from mtplx.runtime.server.anthropic.options import (
    ChoiceNone,
    ChoiceTool,
    OutputConfig,
    ThinkingConfig,
    ThinkingEnabled,
    Tool,
    ToolChoice,
)
from mtplx.runtime.server.anthropic.schema import CountTokensRequest
from mtplx.runtime.server.anthropic.schema_messages import Message
from mtplx.runtime.server.chat_template import ChatTemplate
from mtplx.runtime.server.conversation import Conversation
from mtplx.runtime.server.output.reasoning import reasoning_markers
from mtplx.runtime.server.prompting import Prompt, read_prompt
from mtplx.runtime.server.served import ServedModel

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service

_EFFORT: Final = "reasoning_effort"

# The keys of a conversation in OpenAI's shape, and those of this API that they come from.
_KEYS: Final = (
    (re.compile(r"tools\[(\d+)\]\.function\.parameters"), r"tools[\1].input_schema"),
    (re.compile(r"tools\[(\d+)\]\.function"), r"tools[\1]"),
    (re.compile(r"tool_choice\.function"), "tool_choice"),
    (re.compile(r"response_format\.json_schema"), "output_config.format"),
    (re.compile(r"response_format"), "output_config.format"),
    (re.compile(r"enable_thinking"), "thinking"),
    (re.compile(rf"chat_template_kwargs\.{_EFFORT}"), "output_config.effort"),
)
_MESSAGE: Final = re.compile(r"messages\[(\d+)\][\w.\[\]]*")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was read. `notes` tell what was put into another shape.

    `edits` are those that were done to the conversation, None where none were asked for; `original_tokens` is the
    length of the prompt without them.
    """

    prompt: Prompt
    messages: Messages
    original_tokens: int
    edits: tuple[dict[str, Any], ...] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was put into another shape."""
        return (*self.prompt.rendered.notes, *self.messages.notes)

    @property
    def num_tokens(self) -> int:
        """The length of the prompt."""
        return len(self.prompt.rendered.ids)

    def in_our_keys(self, error: InvalidRequestError) -> InvalidRequestError:
        """`error` with the keys of this API."""
        return _translated(error, self.messages)


async def read(service: Service, request: CountTokensRequest) -> Asked:
    """The prompt that `request` asks for.

    Raises:
        InvalidRequestError: what the model's chat template cannot do, by the key that asks for it.
    """
    prompt, messages = await _read(service, request, request.messages)
    size = len(prompt.rendered.ids)
    if request.context_management is None:
        return Asked(prompt, messages, size)
    edited, cleared = _edited(request.messages, request.context_management)
    if cleared:
        prompt, messages = await _read(service, request, edited)
    edit = {
        "type": CLEAR_THINKING,
        "cleared_thinking_turns": cleared,
        "cleared_input_tokens": size - len(prompt.rendered.ids),
    }
    return Asked(prompt, messages, size, (edit,) if cleared else ())


def _edited(messages: list[Message], wanted: ContextManagement) -> tuple[list[Message], int]:
    """The messages after all edits, and how many turns lost their thinking."""
    cleared = 0
    for edit in wanted.edits:
        messages, turns = clear_thinking(messages, edit.turns)
        cleared += turns
    return messages, cleared


async def _read(
    service: Service, request: CountTokensRequest, said: list[Message]
) -> tuple[Prompt, Messages]:
    model = service.model
    messages = read_messages(request.system, said)
    tools = [_function(tool) for tool in request.tools]
    choice = request.tool_choice
    effort = _effort(request.output_config, model, tools)
    for key in _without_effect(request, effort):
        messages.note("has no effect here", key)
    conversation = Conversation(
        messages=messages.said,
        tools=tools,
        tool_choice=_choice(choice),
        parallel_tool_calls=not getattr(choice, "disable_parallel_tool_use", False),
        response_format=_response_format(request.output_config),
        enable_thinking=_thinks(request.thinking, model),
        template_options=effort,
    )
    try:
        return await _read_prompt(service, conversation, messages)
    except InvalidRequestError as error:
        raise _translated(error, messages) from error


async def _read_prompt(
    service: Service, conversation: Conversation, messages: Messages
) -> tuple[Prompt, Messages]:
    """The prompt; turns of one role that follow each other are one, where the template wants turns to alternate."""
    try:
        return await read_prompt(service, conversation), messages
    except InvalidRequestError as error:
        merged = _merged(messages)
        if len(merged.said) == len(messages.said):
            raise
        try:
            prompt = await read_prompt(service, replace(conversation, messages=merged.said))
        except InvalidRequestError:
            raise error from None
        return prompt, merged


def _function(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice | None) -> str | dict[str, Any]:
    if choice is None:
        return "auto"
    if isinstance(choice, ChoiceTool):
        return {"type": "function", "function": {"name": choice.name}}
    if isinstance(choice, ChoiceNone):
        return "none"
    return {"auto": "auto", "any": "required"}[choice.type]


def _response_format(config: OutputConfig | None) -> dict[str, Any] | None:
    if config is None or config.format is None:
        return None
    schema = {"name": "answer", "schema": config.format.json_schema, "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def _thinks(config: ThinkingConfig | None, model: ServedModel) -> bool | None:
    """Whether to think; None leaves it to the template."""
    if config is None or config.type == "adaptive":
        return None
    if config.type == "disabled":
        return False
    if reasoning_markers(model.tokenizer) is None:
        raise InvalidRequestError(
            f"thinking is enabled, and {model.name} does not think.",
            key="thinking",
            hint='Leave it out, or send {"type": "disabled"}.',
        )
    variables = ChatTemplate(model.tokenizer).variables(())
    # A template without a switch is that of a model which thinks by itself.
    return True if variables is None or variables & {"enable_thinking", "thinking"} else None


def _effort(
    config: OutputConfig | None, model: ServedModel, tools: list[dict[str, Any]]
) -> dict[str, Any]:
    if config is None or config.effort is None:
        return {}
    variables = ChatTemplate(model.tokenizer).variables(tools)
    return {_EFFORT: config.effort} if variables and _EFFORT in variables else {}


def _without_effect(request: CountTokensRequest, effort: dict[str, Any]) -> Iterator[str]:
    """Keys that ask for what neither the server nor the model's template does."""
    if isinstance(request.thinking, ThinkingEnabled):
        yield "thinking.budget_tokens"
    if request.output_config is not None and request.output_config.effort and not effort:
        yield "output_config.effort"


def _merged(messages: Messages) -> Messages:
    """`messages` with neighbours of one role as one, a blank line between them."""
    changes = {what: list(places) for what, places in messages.changes.items()}
    merged = Messages(changes=changes)
    for place, message in zip(messages.places, messages.said, strict=True):
        last = merged.said[-1] if merged.said else {}
        if message["role"] == "user" == last.get("role"):
            merged.said[-1] = {**last, "content": f"{last['content']}\n\n{message['content']}"}
            merged.note("one message with the one before it", place)
        else:
            merged.add(place, message)
    return merged


def _translated(error: InvalidRequestError, messages: Messages) -> InvalidRequestError:
    """`error` about a conversation in OpenAI's shape as one about the request."""
    found = _MESSAGE.fullmatch(error.key)
    if found is None:
        key = error.key
        for pattern, ours in _KEYS:
            key = pattern.sub(ours, key)
        return InvalidRequestError(error.message.replace(error.key, key), key=key, hint=error.hint)
    index = int(found[1])
    key = messages.places[index]
    message = error.message.replace(error.key, key)
    if messages.said[index]["role"] == "system" and key != "system":
        # Clients that know these words, Claude Code among them, ask again without messages of this role.
        reason = message.removeprefix(f"{key}: ")
        message = f"{key}: role 'system' is not supported on this model at this place: {reason}"
    return InvalidRequestError(message, key=key, hint=error.hint)
