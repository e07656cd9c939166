"""The requests of the API. Each key of the public schema is declared: used, without effect, or refused by its name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mtplx.runtime.server.anthropic.blocks import CacheControl, TextContent
from mtplx.runtime.server.anthropic.context import ContextManagement
from mtplx.runtime.server.anthropic.options import (
    AnyTool,
    OutputConfig,
    ThinkingConfig,
    ToolChoice,
)
from mtplx.runtime.server.anthropic.schema_messages import Message
from mtplx.runtime.server.extensions import Extensions
from mtplx.runtime.server.validation import RequestPart, refuse, refused


class Metadata(RequestPart):
    """Who asks. Without effect."""

    user_id: str | None = None


def _no_servers(value: Any) -> None:
    if value:
        refuse("is not available here: this server connects to no others")


_NOBODY = "there are no users and workspaces"


class CountTokensRequest(RequestPart):
    """`/v1/messages/count_tokens`: what the prompt is made of."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    system: TextContent | None = None
    tools: list[AnyTool] = Field(default_factory=list)
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None
    context_management: ContextManagement | None = None
    mcp_servers: Annotated[None, BeforeValidator(_no_servers)] = None
    speed: Literal["standard"] | None = None
    billing_policy: Annotated[None, refused("nothing is billed")] = None
    compaction: Annotated[None, refused("conversations are not shortened")] = None
    user_profile_id: Annotated[None, refused(_NOBODY)] = None
    workspace_id: Annotated[None, refused(_NOBODY)] = None


class MessagesRequest(CountTokensRequest, Extensions):
    """`/v1/messages`. `metadata`, `service_tier` and every `cache_control` are without effect."""

    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool = False
    stop_sequences: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    temperature: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    container: Annotated[None, refused("this server runs no code")] = None
    diagnostics: Annotated[None, refused("earlier requests are not remembered")] = None
    fallback_credit_token: Annotated[None, refused("nothing is billed")] = None
    fallbacks: Annotated[None, BeforeValidator(_no_servers)] = None
    inference_geo: Annotated[None, refused("answers are made where this server runs")] = None
    thread: Annotated[None, refused("conversations are not kept")] = None
