"""`/v1/chat/completions`: from the request to its choices, and their answers as one object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.server.answering import Delta
from mtplx.runtime.server.conversation import Conversation
from mtplx.runtime.server.openai.choices import Choice, ChoiceDelta, seeded
from mtplx.runtime.server.openai.head import Head
from mtplx.runtime.server.openai.logprobs import chat_logprobs
from mtplx.runtime.server.openai.sampling import read_bias
from mtplx.runtime.server.openai.schema import ChatRequest
from mtplx.runtime.server.openai.thinking import read_thinking
from mtplx.runtime.server.openai.tokens import TokenTexts
from mtplx.runtime.server.openai.usage import Usage
from mtplx.runtime.server.parts import (
    Part,
    ReasoningPart,
    TextPart,
    ToolArgumentsPart,
    ToolCallPart,
)
from mtplx.runtime.server.prompting import make_job, read_prompt
from mtplx.runtime.server.told import told

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service

PREFIX = "chatcmpl-"


class Asked(NamedTuple):
    """The choices that a request wants, and what of it was put otherwise."""

    choices: list[Choice]
    notes: tuple[str, ...]


async def read_chat(
    service: Service, wanted: ChatRequest, body: dict[str, Any], head: Head
) -> Asked:
    """The choices of a request; messages and tools go to the template as `body` has them.

    Raises:
        InvalidRequestError: what the request or the model's chat template cannot do, by the key that asks for it.
    """
    options = _options(service, wanted)
    tools = body.get("tools") or []
    thought = read_thinking(
        service.model,
        tools,
        effort=wanted.reasoning_effort,
        key="reasoning_effort",
        enabled=wanted.enable_thinking,
        variables=wanted.chat_template_kwargs,
    )
    conversation = Conversation(
        messages=body["messages"],
        tools=tools,
        tool_choice=body.get("tool_choice") or "auto",
        parallel_tool_calls=wanted.parallel_tool_calls is not False,
        response_format=body.get("response_format"),
        enable_thinking=thought.is_enabled,
        template_options=thought.variables,
    )
    prompt = await read_prompt(service, conversation)
    choices = []
    for number in range(wanted.n or 1):
        job = await make_job(
            service,
            prompt,
            seeded(options, number),
            job_id=head.request_id,
            cache_key=head.cache_key,
        )
        choices.append(Choice(job, prompt.parser, prompt.thinking, is_new_prompt=number == 0))
    return Asked(choices, (*thought.notes, *prompt.rendered.notes))


def _options(service: Service, wanted: ChatRequest) -> GenerationOptions:
    if wanted.top_logprobs is not None and not wanted.logprobs:
        raise InvalidRequestError(
            "top_logprobs is set, and logprobs is not true.", key="top_logprobs"
        )
    limits = {wanted.max_tokens, wanted.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise InvalidRequestError(
            f"max_tokens is {wanted.max_tokens}, which max_completion_tokens contradicts.",
            key="max_tokens",
        )
    more = {
        "max_tokens": wanted.max_completion_tokens or wanted.max_tokens,
        "stop": tuple(wanted.stop),
        "logit_bias": read_bias(wanted.logit_bias, service.model),
        "logprobs": (wanted.top_logprobs or 0) if wanted.logprobs else None,
    }
    return wanted.options(service.model, service.defaults, more)


async def collect_chat(
    head: Head, asked: Asked, texts: TokenTexts, deltas: AsyncIterator[ChoiceDelta]
) -> dict[str, Any]:
    """The whole answer as one object."""
    answers = [_Answer() for _ in asked.choices]
    usage = Usage()
    async for index, delta in deltas:
        answers[index].take(delta, texts)
        usage.add(delta, is_new_prompt=asked.choices[index].is_new_prompt)
    return {
        **head.envelope(PREFIX, "chat.completion"),
        "choices": [
            answer.to_json(index, choice.job.options, asked.notes)
            for index, (answer, choice) in enumerate(zip(answers, asked.choices, strict=True))
        ],
        "usage": usage.to_json(),
    }


class _Answer:
    """One choice, as far as it has come."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._arguments: list[list[str]] = []
        self._logprobs: list[dict[str, Any]] = []
        self._last = Delta()

    def take(self, delta: Delta, texts: TokenTexts) -> None:
        for part in delta.parts:
            self._part(part)
        self._logprobs += chat_logprobs(texts, delta.logprobs)
        self._last = delta

    def _part(self, part: Part) -> None:
        match part:
            case TextPart(text):
                self._text.append(text)
            case ReasoningPart(text):
                self._reasoning.append(text)
            case ToolCallPart(_, call_id, name):
                self._calls.append({"id": call_id, "type": "function", "name": name})
                self._arguments.append([])
            case ToolArgumentsPart(index, text):
                self._arguments[index].append(text)

    def to_json(
        self, index: int, options: GenerationOptions, notes: tuple[str, ...]
    ) -> dict[str, Any]:
        generation = self._last.generation
        wants_logprobs = options.logprobs is not None
        return {
            "index": index,
            "message": self._message(),
            "logprobs": {"content": self._logprobs, "refusal": None} if wants_logprobs else None,
            "finish_reason": self._last.finish_reason,
            "mtplx": None if generation is None else told(generation, notes),
        }

    def _message(self) -> dict[str, Any]:
        text = "".join(self._text)
        # Null says that there are calls instead; after reasoning alone the text is empty and not missing.
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if self._calls and not text else text,
            "refusal": None,
        }
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": call["type"],
                    "function": {"name": call["name"], "arguments": "".join(arguments)},
                }
                for call, arguments in zip(self._calls, self._arguments, strict=True)
            ]
        return message
