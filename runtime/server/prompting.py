"""From a conversation to all that its answer needs, the same for every API."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtplx.contracts.errors import ModelNotFoundError
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.server.answering import Thinking
from mtplx.runtime.server.conversation import Conversation, Rendered, render
from mtplx.runtime.server.output.parser import OutputParser, make_parser
from mtplx.runtime.server.output.reasoning import reasoning_markers
from mtplx.runtime.server.served import ServedModel

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation as `model` reads it, and how its answer is read."""

    model: ServedModel
    conversation: Conversation
    rendered: Rendered

    @property
    def thinking(self) -> Thinking | None:
        """What counts as reasoning among the tokens of the answer."""
        markers = reasoning_markers(self.model.tokenizer)
        if markers is None:
            return None
        start, end = (self._ids(text) for text in markers)
        return Thinking(
            end=end,
            has_begun=self.rendered.starts_in_reasoning,
            start=start,
        )

    def parser(self) -> OutputParser:
        """A parser for one answer."""
        conversation = self.conversation
        return make_parser(
            self.model,
            conversation.tools,
            conversation.tool_choice,
            self.rendered.starts_in_reasoning,
            parallel_tool_calls=conversation.parallel_tool_calls,
        )

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.model.tokenizer.encode(text, add_special_tokens=False))


def require_model(service: Service, name: str) -> None:
    """Raise ModelNotFoundError unless `name` is what the served model is called."""
    names = service.model.names
    if name not in names:
        raise ModelNotFoundError(
            f"no model {name[:200]!r} is served here, only {', '.join(names)}.",
            hint=f"To answer under this name too, start the server with --alias {name[:200]}.",
        )


async def read_prompt(service: Service, conversation: Conversation) -> Prompt:
    """The prompt of `conversation`. Raises what `render` raises."""
    rendered = await asyncio.to_thread(render, conversation, service.model)
    return Prompt(service.model, conversation, rendered)


async def make_job(
    service: Service, prompt: Prompt, options: GenerationOptions, *, job_id: str, cache_key: str
) -> Job:
    """The job that answers `prompt` once, held by a grammar where the conversation asks for one.

    Raises what `Grammars.constraint` raises.
    """
    constraint = await asyncio.to_thread(
        service.grammars.constraint, prompt.conversation, prompt.rendered
    )
    return Job(
        id=job_id,
        prompt=prompt.rendered.ids,
        options=dataclasses.replace(options, constraint=constraint),
        checkpoints=prompt.rendered.checkpoints,
        cache_key=cache_key,
        deadline_s=service.config.deadline_s,
    )
