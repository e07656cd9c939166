"""What every endpoint but those of the two APIs answers, for the document alone."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mtplx.runtime.server.settings import Changes


class Answer(BaseModel):
    """An object that has no other keys."""

    model_config = ConfigDict(extra="forbid")


class Told(Answer):
    """The key `mtplx` of answers."""

    seed: int
    generation_mode: Literal["ar", "mtp"]
    drafted_tokens: int = Field(ge=0)
    accepted_tokens: int = Field(ge=0)
    notes: list[str]


class Endpoint(Answer):
    """A path and its methods."""

    path: str
    methods: list[str]


class Index(Answer):
    """`/`."""

    name: Literal["mtplx"]
    version: str
    endpoints: list[Endpoint]


class Live(Answer):
    """`/health/live`."""

    status: Literal["live"]


class Ready(BaseModel):
    """`/health/ready`; with a key, where keys are asked for, also what is served and how."""

    status: Literal["ready", "not_ready"]
    reason: str | None


class Stats(BaseModel):
    """`/v1/mtplx/stats`: what is served, and counts."""

    model: str
    scheduler_mode: str
    scheduler_policy: str
    active_requests: int
    queued_requests: int


class Settings(Answer):
    """`/v1/mtplx/settings`."""

    settings: Changes


class Cancelled(Answer):
    """`/v1/mtplx/cancel/{request_id}`."""

    id: str
    cancelled: Literal[True]


class OpenAIFault(Answer):
    """What was wrong; `param` names the key."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(Answer):
    """An error of every path but those of Anthropic's API."""

    error: OpenAIFault


class AnthropicFault(Answer):
    """What was wrong."""

    type: str
    message: str


class AnthropicError(Answer):
    """An error of Anthropic's API."""

    type: Literal["error"]
    error: AnthropicFault
    request_id: str | None
