"""From a conversation to the ids of its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mtplx.contracts.errors import ChatTemplateMissingError
from mtplx.runtime.server.chat_prompt import ChatPrompt, encode
from mtplx.runtime.server.output.reasoning import ReasoningMarkers, reasoning_markers

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mtplx.runtime.server.served import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a request says, in the shape of OpenAI's chat completions.

    `messages` have a role, content (text, text parts or None), and where they apply `tool_calls`, `tool_call_id` and
    `reasoning_content`. `template_options` are variables of the chat template.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] = "auto"
    parallel_tool_calls: bool = True
    response_format: Mapping[str, Any] | None = None
    enable_thinking: bool | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt.

    `checkpoints` are lengths of prefixes that other conversations or the next turn of this one share: behind the
    system message and the tools, and behind the last message. `starts_in_reasoning` says that the prompt ends inside
    the model's reasoning markers, `may_reason` that the model may open them itself. `notes` tell what was put into
    another shape.
    """

    ids: list[int]
    checkpoints: tuple[int, ...] = ()
    starts_in_reasoning: bool = False
    may_reason: bool = False
    notes: tuple[str, ...] = ()


def render(conversation: Conversation, model: ServedModel) -> Rendered:
    """The prompt of a conversation, as the model's chat template writes it.

    Raises:
        InvalidRequestError: a message, tool or option is wrong, or the template does not take it; `key` names it.
        ChatTemplateMissingError: the model has no chat template.
    """
    if not model.tokenizer.has_chat_template:
        raise ChatTemplateMissingError(
            f"{model.name} has no chat template, so it takes no messages.",
            hint="Send a prompt to /v1/completions.",
        )
    prompt = ChatPrompt(conversation, model)
    text = prompt.text()
    prompt.require_everything(text)
    ids = encode(model.tokenizer, text)
    shared = prompt.before_the_answer(text)
    cuts = [prompt.shared_ids(ids), _without_tail(model.tokenizer, ids, text[len(shared) :])]
    markers = reasoning_markers(model.tokenizer)
    opened = _ends_open(text[len(shared) :], markers)
    return Rendered(
        ids=ids,
        checkpoints=tuple(sorted({cut for cut in cuts if 0 < cut < len(ids)})),
        starts_in_reasoning=opened is True,
        may_reason=opened is None and prompt.thinks(markers),
        notes=prompt.notes,
    )


def _without_tail(tokenizer: TokenizerWrapper, ids: list[int], tail: str) -> int:
    """The number of ids before the text `tail`; 0 where its tokens can't be told from those before it."""
    behind = encode(tokenizer, tail) if tail else []
    size = len(ids) - len(behind)
    return size if behind and ids[size:] == behind else 0


def _ends_open(tail: str, markers: ReasoningMarkers | None) -> bool | None:
    """Whether reasoning is open at the end of `tail`; None where it was neither opened nor closed."""
    if markers is None:
        return None
    opened, closed = tail.rfind(markers.start), tail.rfind(markers.end)
    return None if opened == closed else opened > closed
