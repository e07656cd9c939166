"""`/v1/completions`: prompts without a chat template, each answered on its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.loading.tokenizer import encode
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.server.answering import Delta
from mtplx.runtime.server.openai.choices import Choice, ChoiceDelta, seeded
from mtplx.runtime.server.openai.head import Head
from mtplx.runtime.server.openai.logprobs import CompletionLogprobs
from mtplx.runtime.server.openai.sampling import read_bias
from mtplx.runtime.server.openai.schema import CompletionRequest
from mtplx.runtime.server.openai.tokens import TokenTexts
from mtplx.runtime.server.openai.usage import Usage
from mtplx.runtime.server.parts import Part, TextPart
from mtplx.runtime.server.told import told

if TYPE_CHECKING:
    from mtplx.runtime.server.served import ServedModel
    from mtplx.runtime.server.service import Service

_PREFIX: Final = "cmpl-"
_KIND: Final = "text_completion"


class PlainText:
    """Takes all that the model writes for text; see `answering.Parser`."""

    has_tool_calls = False
    is_finished = False

    def feed(self, text: str) -> list[Part]:
        """The text."""
        return [TextPart(text)] if text else []

    def finish(self) -> list[Part]:
        """Nothing is held back."""
        return []


class Asked(NamedTuple):
    """The choices that a request wants, and the text that each of them begins with."""

    choices: list[Choice]
    echoes: list[str]


class _Prompt(NamedTuple):
    ids: list[int]
    text: str


async def read_completion(service: Service, wanted: CompletionRequest, head: Head) -> Asked:
    """The choices of a request: `n` for each prompt, those of the first prompt first.

    Raises:
        InvalidRequestError: a prompt is empty or has ids that are not in the vocabulary, or log-probabilities of the
            prompt are asked for.
    """
    options = _options(service, wanted)
    prompts = await asyncio.to_thread(_read_prompts, service.model, wanted.prompt)
    asked = Asked([], [])
    for prompt in prompts:
        for number in range(wanted.n or 1):
            job = Job(
                id=head.request_id,
                prompt=prompt.ids,
                options=seeded(options, number),
                cache_key=head.cache_key,
                deadline_s=service.config.deadline_s,
            )
            asked.choices.append(Choice(job, PlainText, is_new_prompt=number == 0))
            asked.echoes.append(prompt.text if wanted.echo else "")
    return asked


def _options(service: Service, wanted: CompletionRequest) -> GenerationOptions:
    if wanted.echo and wanted.logprobs is not None:
        raise InvalidRequestError(
            "logprobs is not available beside echo: tokens of the prompt are not scored.",
            key="logprobs",
        )
    more = {
        "max_tokens": wanted.max_tokens,
        "stop": tuple(wanted.stop),
        "logit_bias": read_bias(wanted.logit_bias, service.model),
        "logprobs": wanted.logprobs,
    }
    return wanted.options(service.model, service.defaults, more)


def _read_prompts(model: ServedModel, prompts: Sequence[str | list[int]]) -> list[_Prompt]:
    return [_read_prompt(model, index, prompt) for index, prompt in enumerate(prompts)]


def _read_prompt(model: ServedModel, index: int, prompt: str | list[int]) -> _Prompt:
    if isinstance(prompt, str):
        ids = encode(model.tokenizer, prompt)
        if not ids:
            raise InvalidRequestError(f"prompt is empty (number {index}).", key="prompt")
        return _Prompt(ids, prompt)
    for token in prompt:
        if not 0 <= token < model.vocab_size:
            raise InvalidRequestError(
                f"prompt has the id {token} (number {index}), expected 0 to {model.vocab_size - 1}.",
                key="prompt",
            )
    return _Prompt(prompt, str(model.tokenizer.decode(prompt)))


async def collect_completion(
    head: Head, asked: Asked, texts: TokenTexts, deltas: AsyncIterator[ChoiceDelta]
) -> dict[str, Any]:
    """The whole answer as one object, made of the chunks of a stream."""
    choices = [
        {"index": index, "text": "", "logprobs": None} for index in range(len(asked.choices))
    ]
    pieces: list[list[str]] = [[] for _ in choices]
    usage: dict[str, Any] = {}
    async for chunk in completion_chunks(head, asked, texts, deltas, include_usage=True):
        usage = chunk["usage"] or usage
        for new in chunk["choices"]:
            choice = choices[new["index"]]
            pieces[new["index"]].append(new.pop("text"))
            logprobs = _joined(choice["logprobs"], new.pop("logprobs"))
            choice |= {**new, "logprobs": logprobs}
    for choice, joined in zip(choices, pieces, strict=True):
        choice["text"] = "".join(joined)
    return {**head.envelope(_PREFIX, _KIND), "choices": choices, "usage": usage}


def _joined(so_far: Any, new: dict[str, list[Any]] | None) -> Any:
    if so_far is None or new is None:
        return new if so_far is None else so_far
    for key, values in new.items():
        so_far[key] += values
    return so_far


async def completion_chunks(
    head: Head,
    asked: Asked,
    texts: TokenTexts,
    deltas: AsyncIterator[ChoiceDelta],
    *,
    include_usage: bool,
) -> AsyncGenerator[dict[str, Any]]:
    """The chunks of a stream: of each choice its text and one with its end; then the usage."""
    envelope = head.envelope(_PREFIX, _KIND) | ({"usage": None} if include_usage else {})
    usage = Usage()
    lists: dict[int, CompletionLogprobs] = {}
    async for index, delta in deltas:
        choice = asked.choices[index]
        text = "".join(part.text for part in delta.parts if isinstance(part, TextPart))
        if index not in lists:
            lists[index] = CompletionLogprobs(texts)
            text = asked.echoes[index] + text
        logprobs = None
        if choice.job.options.logprobs is not None and delta.logprobs:
            logprobs = lists[index].take(delta.logprobs)
        if text or logprobs:
            yield {**envelope, "choices": [_choice(index, text, logprobs)]}
        if delta.generation is not None and delta.finish_reason is not None:
            usage.add(delta, is_new_prompt=choice.is_new_prompt)
            yield {**envelope, "choices": [_end(index, delta)]}
    if include_usage:
        yield {**envelope, "choices": [], "usage": usage.to_json()}


def _choice(index: int, text: str, logprobs: dict[str, list[Any]] | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}


def _end(index: int, delta: Delta) -> dict[str, Any]:
    assert delta.generation is not None, "an end has its generation"
    return {
        **_choice(index, "", None),
        "finish_reason": delta.finish_reason,
        "mtplx": told(delta.generation),
    }
