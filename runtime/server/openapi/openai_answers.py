"""What the endpoints of OpenAI's API answer, for the document alone."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mtplx.runtime.server.openapi.answers import Answer, Told


class Logprob(Answer):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprobs(Logprob):
    """A token of the answer, and the likeliest ones in its place."""

    top_logprobs: list[Logprob]


class Logprobs(Answer):
    """Of every token."""

    content: list[TokenLogprobs]
    refusal: None


class Called(Answer):
    """A function and its arguments."""

    name: str
    arguments: str


class ToolCall(Answer):
    """A call."""

    id: str
    type: Literal["function"]
    function: Called


class Message(Answer):
    """An answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str = Field(default="", description="Only where the model thought.")
    tool_calls: list[ToolCall] = Field(default=[], description="Only where it called tools.")


FinishReason = Literal["stop", "length", "tool_calls"]


class ChatChoice(Answer):
    """One answer of several."""

    index: int
    message: Message
    logprobs: Logprobs | None
    finish_reason: FinishReason
    mtplx: Told


class PromptDetails(Answer):
    """Of the prompt's tokens."""

    cached_tokens: int


class AnswerDetails(Answer):
    """Of the answer's tokens, and of those drafted for it."""

    reasoning_tokens: int = Field(ge=0)
    accepted_prediction_tokens: int = Field(ge=0)
    rejected_prediction_tokens: int = Field(ge=0)


class Usage(Answer):
    """Counts of tokens."""

    prompt_tokens: int = Field(ge=1)
    completion_tokens: int = Field(ge=0)
    total_tokens: int = Field(ge=1)
    prompt_tokens_details: PromptDetails
    completion_tokens_details: AnswerDetails


class ChatCompletion(Answer):
    """`/v1/chat/completions`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[ChatChoice] = Field(min_length=1)
    usage: Usage


class OldLogprobs(Answer):
    """Lists of one entry a token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Answer):
    """One answer of several."""

    index: int
    text: str
    logprobs: OldLogprobs | None
    finish_reason: FinishReason
    mtplx: Told


class Completion(Answer):
    """`/v1/completions`."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionChoice] = Field(min_length=1)
    usage: Usage


class Model(Answer):
    """A name of the served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["mtplx"]


class ModelList(Answer):
    """`/v1/models`."""

    object: Literal["list"]
    data: list[Model] = Field(min_length=1)


class InputDetails(Answer):
    """Of the prompt's tokens."""

    cached_tokens: int
    cache_write_tokens: int


class ResponseUsage(Answer):
    """Counts of tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: AnswerDetails
    total_tokens: int


class ContentPart(Answer):
    """The text of a message or of reasoning."""

    type: Literal["output_text", "reasoning_text"]
    text: str
    annotations: list[Any] = Field(default=[])
    logprobs: list[TokenLogprobs] = Field(default=[])


class OutputItem(Answer):
    """A message, reasoning, or the call of a function."""

    id: str
    type: Literal["message", "reasoning", "function_call"]
    status: Literal["completed", "incomplete"]
    role: Literal["assistant"] = "assistant"
    summary: list[Any] = Field(default=[])
    content: list[ContentPart] = Field(default=[])
    encrypted_content: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class Incomplete(Answer):
    """Why an answer is not complete."""

    reason: Literal["max_output_tokens"]


class ReasoningSaid(Answer):
    """How much was to be thought."""

    effort: str | None
    summary: None


class Response(Answer):
    """`/v1/responses`."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["completed", "incomplete"]
    background: Literal[False]
    error: None
    incomplete_details: Incomplete | None
    instructions: str | None
    max_output_tokens: int
    max_tool_calls: int | None
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: ReasoningSaid
    store: Literal[False]
    temperature: float | None
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float | None
    truncation: Literal["disabled"]
    usage: ResponseUsage
    user: str | None
    metadata: dict[str, str]
    mtplx: Told
