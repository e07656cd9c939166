"""The requests of chat and text completions. Each key of the public schema is declared here.

A key is used, without effect (`Labels`), or refused by its name where it is anything but null.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from mtplx.runtime.server.openai.messages import Message
from mtplx.runtime.server.openai.sampling import Sampling, Stops, StreamOptions, TokenCount
from mtplx.runtime.server.openai.tools import ResponseFormat, Tool, ToolChoice
from mtplx.runtime.server.validation import RequestPart, refuse, refused

MAX_CHOICES: Final = 8
MAX_PROMPTS: Final = 64

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Metadata = Annotated[dict[str, str], Field(max_length=16)]

NO_AUDIO: Final = "this server takes and makes text only"
NOT_STORED: Final = "nothing is stored"
NO_WEB: Final = "this server connects to no others"
NOT_MODERATED: Final = "nothing is moderated"


def not_true(reason: str) -> BeforeValidator:
    """Marks a switch that can only be off."""

    def check(value: Any) -> Any:
        if value is True:
            refuse(f"is not available here: {reason}")
        return value

    return BeforeValidator(check)


class Labels(RequestPart):
    """Keys that are taken and without effect: who asks and what for, and hints to servers that have many users."""

    user: str | None = None
    metadata: Metadata | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory"] | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: Annotated[bool | None, not_true(NOT_STORED)] = None


class ChatRequest(Labels, Sampling):
    """`/v1/chat/completions`.

    `enable_thinking` and `chat_template_kwargs` are not in the public schema; the latter are variables of the model's
    chat template, and one that it does not read is refused. `reasoning_effort` "none" is thinking turned off;
    others reach the model where its template reads them, and a note tells where it does not.
    """

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    stop: Stops = Field(default_factory=list)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: list[Literal["text"]] | None = None
    verbosity: Literal["medium"] | None = None
    audio: Annotated[None, refused(NO_AUDIO)] = None
    function_call: Annotated[None, refused("send tool_choice")] = None
    functions: Annotated[None, refused("send tools")] = None
    moderation: Annotated[None, refused(NOT_MODERATED)] = None
    prediction: Annotated[None, refused("the model's own head makes the drafts")] = None
    prompt_cache_options: Annotated[None, refused("prefixes are kept by themselves")] = None
    web_search_options: Annotated[None, refused(NO_WEB)] = None


Ids = Annotated[list[int], Field(min_length=1)]


def _prompts(value: Any) -> Any:
    """Every form of a prompt as a list of texts or of lists of ids."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        refuse("is neither text, nor ids of tokens, nor a list of either that is not empty")
    if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        value = [value]
    is_texts = all(isinstance(item, str) for item in value)
    if not is_texts and not all(isinstance(item, list) for item in value):
        refuse("mixes texts and ids of tokens, or holds neither")
    if len(value) > MAX_PROMPTS:
        refuse(f"has {len(value)} prompts, and {MAX_PROMPTS} is the most")
    return value


class CompletionRequest(Sampling):
    """`/v1/completions`. `user` is without effect."""

    model: str
    prompt: Annotated[
        list[str] | list[Ids],
        BeforeValidator(_prompts, json_schema_input_type=str | Ids | list[str] | list[Ids]),
    ]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: TokenCount | None = None
    stop: Stops = Field(default_factory=list)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    echo: bool | None = None
    user: str | None = None
    best_of: Annotated[None, refused("no answer is chosen among several; send n")] = None
    suffix: Annotated[None, refused("the model writes on at the end only")] = None
