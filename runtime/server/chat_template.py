"""A model's chat template: what it can take, and running it within bounds.

Templates come with models, so they are programs of strangers. They run in the sandbox of transformers (jinja2's
immutable one: no attribute that leads out of the data, no change of the data), for a limited time, and may write a
limited text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, meta
from jinja2.exceptions import SecurityError
from transformers.utils.chat_template_utils import _compile_jinja_template

from mtplx.contracts.errors import ChatTemplateMissingError
from mtplx.runtime.server.bounded import OvertimeError, run_bounded

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]

RENDER_SECONDS = 10.0
MAX_CHARACTERS = 32 * 1024 * 1024

# What apply_chat_template gives every template; not for requests to set.
_OWN_VARIABLES = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
)


class TemplateFailureError(Exception):
    """The template did not render. `is_refusal` says whether it might take other messages."""

    def __init__(self, reason: str, *, is_refusal: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_refusal = is_refusal


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The chat template of one tokenizer."""

    tokenizer: TokenizerWrapper

    def text(self, tools: Tools) -> str | None:
        """The jinja text used with these tools; None for a template that is a Python function.

        Raises ChatTemplateMissingError where the model has several and none of them is the default.
        """
        settings: dict[str, Any] = getattr(self.tokenizer, "init_kwargs", {})
        if self.tokenizer.chat_template is None or "chat_template_type" in settings:
            return None
        try:
            return str(self.tokenizer.get_chat_template(None, list(tools) or None))
        except ValueError as error:
            raise ChatTemplateMissingError(
                f"no chat template can be chosen: {_one_line(error)}"
            ) from error

    def variables(self, tools: Tools) -> frozenset[str] | None:
        """The names that a request may set, beyond messages and tools; None where that is not known."""
        text = self.text(tools)
        if text is None:
            return None
        try:
            return run_bounded(lambda: _variables(text), RENDER_SECONDS) - _OWN_VARIABLES
        except (OvertimeError, TemplateError):
            # Rendering it will say what is wrong.
            return None

    def render(
        self,
        messages: Messages,
        tools: Tools = (),
        options: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt of a conversation.

        Raises TemplateFailureError when the template refuses it, fails, or leaves its bounds.
        """
        text = self.text(tools)
        given = {
            "tools": [dict(tool) for tool in tools] or None,
            "add_generation_prompt": add_generation_prompt,
            **(options or {}),
        }
        plain = [dict(message) for message in messages]

        def work() -> str:
            if text is None:
                return str(self.tokenizer.apply_chat_template(plain, tokenize=False, **given))
            return _run(text, {**self._settings(), "messages": plain, "documents": None, **given})

        try:
            return run_bounded(work, RENDER_SECONDS)
        except OvertimeError as error:
            raise TemplateFailureError(f"it {error}", is_refusal=False) from None
        except SecurityError as error:
            reason = f"it does what the sandbox forbids: {error}"
            raise TemplateFailureError(reason, is_refusal=False) from None
        except TemplateFailureError:
            raise
        except TemplateError as error:
            raise TemplateFailureError(_one_line(error), is_refusal=True) from None
        except Exception as error:  # a template is a program of the model's author
            reason = f"{type(error).__name__}: {_one_line(error)}"
            raise TemplateFailureError(reason, is_refusal=True) from None

    def _settings(self) -> dict[str, Any]:
        """What mlx-lm and transformers give a template beside the request."""
        special: Mapping[str, Any] = self.tokenizer.special_tokens_map
        return {**special, "enable_thinking": self.tokenizer.has_thinking}


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """What a template makes of the shapes that clients send."""

    takes_tools: bool
    takes_argument_text: bool
    takes_developer: bool


_PROBE_ARGUMENTS = '{"probe_key": "probe_value"}'
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "Probe.",
        "parameters": {
            "type": "object",
            "properties": {"probe_key": {"type": "string"}},
            "required": ["probe_key"],
        },
    },
}


@lru_cache(maxsize=8)
def traits_of(tokenizer: TokenizerWrapper) -> TemplateTraits:
    """What the template of `tokenizer` takes, found out by rendering small conversations once."""
    template = ChatTemplate(tokenizer)
    asked = {"role": "user", "content": "probe"}
    with_tool = _rendered(template, [asked], [_PROBE_TOOL])
    called = _rendered(template, [asked, *_probe_call(_PROBE_ARGUMENTS)], [_PROBE_TOOL])
    text = template.text(())
    if text is None:
        developer = _rendered(template, [{"role": "developer", "content": "probe"}, asked])
        takes_developer = developer is not None
    else:
        takes_developer = "developer" in text
    return TemplateTraits(
        takes_tools=with_tool is None or with_tool != _rendered(template, [asked]),
        takes_argument_text=called is not None and _PROBE_ARGUMENTS in called,
        takes_developer=takes_developer,
    )


def _probe_call(arguments: Any) -> list[dict[str, Any]]:
    # Mistral's templates take ids of nine letters and digits only.
    call_id = "probe0001"
    function = {"name": "probe_tool", "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "probe", "tool_call_id": call_id, "name": "probe_tool"},
    ]


def _rendered(template: ChatTemplate, messages: Messages, tools: Tools = ()) -> str | None:
    try:
        return template.render(messages, tools)
    except TemplateFailureError:
        return None


def _run(text: str, given: Mapping[str, Any]) -> str:
    pieces: list[str] = []
    size = 0
    # JSON there and back: the template gets data of its own, of plain types only.
    for piece in _compile_jinja_template(text).generate(**json.loads(json.dumps(given))):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_CHARACTERS:
            reason = f"it writes more than {MAX_CHARACTERS} characters"
            raise TemplateFailureError(reason, is_refusal=False)
    return "".join(pieces)


@lru_cache(maxsize=8)
def _variables(text: str) -> frozenset[str]:
    environment = _compile_jinja_template(text).environment
    return frozenset(meta.find_undeclared_variables(environment.parse(text)))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or "no reason given"
