"""One conversation and the chat template that writes it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.server.chat_messages import MessageReader, read_tools
from mtplx.runtime.server.chat_template import (
    ChatTemplate,
    Messages,
    TemplateFailureError,
    traits_of,
)
from mtplx.runtime.server.output.dialects import find_dialect
from mtplx.runtime.server.output.reasoning import ReasoningMarkers, reasoning_markers

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mtplx.runtime.server.conversation import Conversation
    from mtplx.runtime.server.served import ServedModel

# The template variables that turn reasoning on and off.
_THINKING_SWITCHES = ("enable_thinking", "thinking")
# Stands for a message that no real one begins like.
_OTHER_MESSAGE = {"role": "user", "content": "\ue000"}


class ChatPrompt:
    """What the template makes of a conversation. `notes` tell what was put into another shape, or left out.

    Raises InvalidRequestError for what the template does not take; `key` names it.
    """

    def __init__(self, conversation: Conversation, model: ServedModel) -> None:
        self._name = model.name
        self._tokenizer = model.tokenizer
        self._template = ChatTemplate(model.tokenizer)
        traits = traits_of(model.tokenizer)
        self._tools = read_tools(conversation.tools)
        if self._tools and not traits.takes_tools:
            raise InvalidRequestError(
                f"the chat template of {self._name} has no place for tools.", key="tools"
            )
        reader = MessageReader(traits)
        self._messages = reader.read(conversation.messages)
        self._options = self._checked_options(conversation)
        self.notes = reader.notes
        if self._tools and find_dialect(model.tokenizer) is None:
            note = f"nothing says how {self._name} writes tool calls: they will come as text"
            self.notes = (*self.notes, note)

    def text(self) -> str:
        """The whole prompt."""
        try:
            return self._render(self._messages)
        except TemplateFailureError as failure:
            raise self._located(failure) from failure

    def before_the_answer(self, text: str) -> str:
        """`text` without what asks for an answer at its end."""
        try:
            messages = self._render(self._messages, add_generation_prompt=False)
        except TemplateFailureError:
            return text
        return messages if text.startswith(messages) else text[: _common(text, messages)]

    def shared_ids(self, ids: list[int]) -> int:
        """How many of `ids` every conversation with this system message and these tools begins with; 0 if untold."""
        instructing = ("system", "developer")
        first = next((n for n, m in enumerate(self._messages) if m["role"] not in instructing), 0)
        try:
            other = self._render([*self._messages[:first], _OTHER_MESSAGE])
        except TemplateFailureError:
            return 0
        at = other.find(_OTHER_MESSAGE["content"])
        return _common(ids, encode(self._tokenizer, other[:at])) if at > 0 else 0

    def require_everything(self, text: str) -> None:
        """Refuse messages that the template leaves out, instead of answering without them.

        What an assistant said, templates shorten on purpose, its reasoning or words beside a call: a note says so.
        """
        missing = _not_in_order(self._messages, text)
        spoken = [n for n in missing if self._messages[n]["role"] == "assistant"]
        if spoken:
            numbers = ", ".join(str(n) for n in spoken)
            note = f"the chat template leaves out what the assistant said (messages {numbers})"
            self.notes = (*self.notes, note)
        # A second system message is what templates drop most; its words may well stand elsewhere, too.
        late = {n for n, m in enumerate(self._messages) if n > 0 and m["role"] == "system"}
        for index in self._left_out(sorted(late.union(missing).difference(spoken))):
            key, role = f"messages[{index}].content", self._messages[index]["role"]
            raise InvalidRequestError(
                f"{key}: the chat template of {self._name} leaves out a {role} message at this place.",
                key=key,
                hint="Put one system message first; then user, assistant and tool messages.",
            )
        for index, message in enumerate(self._messages):
            for number, call in enumerate(message.get("tool_calls", ())):
                if call["function"]["name"] not in text:
                    key = f"messages[{index}].tool_calls[{number}]"
                    raise InvalidRequestError(
                        f"{key}: the chat template of {self._name} leaves out this tool call.",
                        key=key,
                    )

    def _left_out(self, suspects: list[int]) -> list[int]:
        """Those of the messages whose content the template does not write, in any form.

        It may write it as JSON, or take words in it for a switch: other contents in their places tell.
        """
        marks = {n: f"\ue000{n}\ue001" for n in suspects}
        changed = [
            {**message, "content": marks.get(n, message["content"])}
            for n, message in enumerate(self._messages)
        ]
        try:
            text = self._render(changed) if suspects else ""
        except TemplateFailureError:
            return []
        return [n for n in suspects if marks[n] not in text]

    def thinks(self, markers: ReasoningMarkers | None) -> bool:
        """Whether the model was made to reason before it answers, and is not told to leave it."""
        if markers is None or any(self._options.get(name) is False for name in _THINKING_SWITCHES):
            return False
        text = self._template.text(self._tools)
        return text is None or markers.start in text

    def _render(self, messages: Messages, *, add_generation_prompt: bool = True) -> str:
        return self._template.render(
            messages, self._tools, self._options, add_generation_prompt=add_generation_prompt
        )

    def _checked_options(self, conversation: Conversation) -> dict[str, Any]:
        """The variables to set. Raises InvalidRequestError for one that the template does not read."""
        known = self._template.variables(self._tools)
        options = dict(conversation.template_options)
        for key in options:
            if known is not None and key not in known:
                raise InvalidRequestError(
                    f"chat_template_kwargs.{key}: the chat template of {self._name} does not read it; "
                    f"it reads {', '.join(sorted(known)) or 'nothing'}.",
                    key=f"chat_template_kwargs.{key}",
                )
        wanted = conversation.enable_thinking
        if wanted is None:
            return options
        for name in _THINKING_SWITCHES:
            if known is None or name in known:
                return {**options, name: wanted}
        if wanted or self._thinks_always():
            raise InvalidRequestError(
                f"enable_thinking: the chat template of {self._name} does not read it.",
                key="enable_thinking",
            )
        return options

    def _thinks_always(self) -> bool:
        markers = reasoning_markers(self._tokenizer)
        return markers is not None and markers.start in (self._template.text(self._tools) or "")

    def _located(self, failure: TemplateFailureError) -> InvalidRequestError:
        """The refusal of a template, with the message or tool that it is about."""
        what = f"the chat template of {self._name} does not take this conversation"
        if not failure.is_refusal:
            return InvalidRequestError(f"messages: {what}: {failure.reason}.", key="messages")
        if self._tools and self._refusal(self._messages, ()) is None:
            asked = [_OTHER_MESSAGE]
            faulty = [n for n, tool in enumerate(self._tools) if self._refusal(asked, [tool])]
            key = f"tools[{faulty[0]}]" if len(faulty) == 1 else "tools"
        else:
            first = bisect_left(
                range(len(self._messages)), 1, key=lambda n: int(self._fails_at(n, failure.reason))
            )
            key = f"messages[{first}]" if first < len(self._messages) else "messages"
        return InvalidRequestError(f"{key}: {what}: {failure.reason}.", key=key)

    def _fails_at(self, index: int, reason: str) -> bool:
        """Whether the conversation up to the message `index`, and with it, is refused for this reason."""
        beginning = self._messages[: index + 1]
        found = self._refusal(beginning, self._tools)
        if found not in (None, reason):
            # It may be refused for another one, as having no question yet.
            found = self._refusal([*beginning, _OTHER_MESSAGE], self._tools)
        return found == reason

    def _refusal(self, messages: Messages, tools: Sequence[Mapping[str, Any]]) -> str | None:
        """Why the template does not take these messages; None if it does."""
        try:
            self._template.render(messages, tools, self._options)
        except TemplateFailureError as failure:
            return failure.reason
        return None


def encode(tokenizer: TokenizerWrapper, text: str) -> list[int]:
    """Token ids of a prompt's text; the template has written its special tokens."""
    # Whether it is too long is said elsewhere, as an error.
    return list(tokenizer.encode(text, add_special_tokens=False, verbose=False))


def _not_in_order(messages: Messages, text: str) -> list[int]:
    """The messages whose content is not in `text`, behind that of the message before them."""
    missing: list[int] = []
    at = 0
    for index, message in enumerate(messages):
        content = message["content"].strip()
        found = text.find(content, at)
        if found < 0:
            missing.append(index)
        else:
            at = found + len(content)
    return missing


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Length of the longest common beginning."""
    sizes = range(1, min(len(one), len(other)) + 1)
    return bisect_left(sizes, 1, key=lambda size: int(one[:size] != other[:size]))
