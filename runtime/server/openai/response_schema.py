"""The request of a response. Each key of the public schema is declared here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.server.openai.messages import form_of
from mtplx.runtime.server.openai.response_items import Item
from mtplx.runtime.server.openai.sampling import Sampling, TokenCount
from mtplx.runtime.server.openai.schema import NO_AUDIO, NOT_MODERATED, Effort, Labels, not_true
from mtplx.runtime.server.openai.tools import (
    Function,
    ResponseTextFormat,
    ResponseToolChoice,
    function_only,
)
from mtplx.runtime.server.validation import LABEL, RequestPart, refuse, refused

_NOT_KEPT = "no response is kept; send the whole conversation as input"
LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"


class FunctionTool(Function):
    """A function that the client runs."""

    type: Literal["function"]
    allowed_callers: list[Literal["direct"]] | None = None
    defer_loading: Annotated[bool | None, not_true("all tools are told at once")] = None
    is_async: Annotated[
        bool | None, not_true("calls are answered in turn"), Field(alias="async")
    ] = None
    output_schema: Annotated[None, refused("results are text")] = None


Tool = Annotated[FunctionTool, BeforeValidator(function_only)]


class ReasoningOptions(RequestPart):
    """How much to think. A summary is not made: what the model thinks is shown as it is."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    mode: Literal["standard"] | None = None
    context: Literal["auto"] | None = None


class TextOptions(RequestPart):
    """The form of the text."""

    format: ResponseTextFormat | None = None
    verbosity: Literal["medium"] | None = None


class StreamOptions(RequestPart):
    """What a stream tells beside its text."""

    include_obfuscation: Annotated[bool | None, not_true("nothing is padded")] = None


def _includable(value: Any) -> Any:
    if value not in (LOGPROBS, SEALED):
        refuse(f"is {str(value)[:60]!r}; there is nothing of it here, only {LOGPROBS} and {SEALED}")
    return value


def _not_auto(value: Any) -> Any:
    if value == "auto":
        refuse("is 'auto', which is not available here: nothing is left out of a conversation")
    return value


Includable = Annotated[str, BeforeValidator(_includable)]
Input = Annotated[
    Annotated[str, Tag(f"{LABEL}text")]
    | Annotated[list[Item], Field(min_length=1), Tag(f"{LABEL}parts")],
    Discriminator(form_of),
]


class ResponseRequest(Labels, Sampling):
    """`/v1/responses`."""

    model: str
    input: Input
    instructions: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: TokenCount | None = None
    include: list[Includable] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: TokenCount | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    truncation: Annotated[
        Literal["disabled"] | None,
        BeforeValidator(_not_auto),
    ] = None
    background: Annotated[bool | None, not_true("answers are made while the client waits")] = None
    access_programs: Annotated[None, refused("there are no programs")] = None
    background_options: Annotated[None, refused("answers are made while the client waits")] = None
    context_management: Annotated[None, refused("nothing is left out of a conversation")] = None
    conversation: Annotated[None, refused(_NOT_KEPT)] = None
    image: Annotated[None, refused(NO_AUDIO)] = None
    moderation: Annotated[None, refused(NOT_MODERATED)] = None
    previous_response_id: Annotated[None, refused(_NOT_KEPT)] = None
    prompt: Annotated[None, refused("no prompts are kept; send instructions and input")] = None
    prompt_cache_options: Annotated[None, refused("prefixes are kept by themselves")] = None

    def wants(self, what: str) -> bool:
        """Whether `include` names this."""
        return what in (self.include or ())

    def num_logprobs(self) -> int | None:
        """How many others to tell beside each token; None without log-probabilities.

        Raises InvalidRequestError for a number that `include` does not ask for.
        """
        if self.wants(LOGPROBS):
            return self.top_logprobs or 0
        if self.top_logprobs:
            raise InvalidRequestError(
                f"top_logprobs is {self.top_logprobs}, and include does not name {LOGPROBS}.",
                key="top_logprobs",
            )
        return None
