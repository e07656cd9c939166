"""The Anthropic API on a trained model, with the official client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from anthropic import Anthropic, AsyncAnthropic

from tests.support.real_service import forget_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anthropic.types import Message

    from mtplx.runtime.server.service import Service

MODEL = "qwen3_5"
QUESTION = "Write a Python function named add. Add two numbers."


def tool(name: str, description: str, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return {"name": name, "description": description, "input_schema": schema}


TOOLS = [
    tool("get_weather", "Current weather of a city.", city="string"),
    tool("read_file", "Read a text file.", path="string"),
]


@pytest.fixture(scope="module")
def client(trained_url: str) -> Iterator[Anthropic]:
    with Anthropic(base_url=trained_url, api_key="none", max_retries=0) as client:
        yield client


def asking(text: str = QUESTION, **keys: Any) -> dict[str, Any]:
    """A request; what the client no longer has a parameter for is in `extra_body`."""
    extra = {"temperature": 0} | keys.pop("extra_body", {})
    plain = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 48,
        "extra_body": extra,
    }
    return plain | keys


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_mtp_on_and_off_give_the_same_text_for_the_same_seed(
    client: Anthropic, trained_service: Service, temperature: float
) -> None:
    texts = set()
    for extra in ({"generation_mode": "ar"}, {"depth": 1}, {"depth": 4}):
        forget_prefixes(trained_service)
        body = asking(extra_body={"temperature": temperature, "seed": 3, **extra})
        message = client.messages.create(**body)
        texts.add(text_of(message))
        told = message.to_dict()["mtplx"]
        assert told["generation_mode"] == extra.get("generation_mode", "mtp")
    assert len(texts) == 1


def test_a_stream_says_what_the_whole_message_says(client: Anthropic) -> None:
    whole = client.messages.create(**asking())
    with client.messages.stream(**asking()) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(pieces) == text_of(whole) == text_of(message)
    assert message.stop_reason == whole.stop_reason
    assert message.usage.output_tokens == whole.usage.output_tokens


def test_a_tool_is_called_and_its_result_read(client: Anthropic) -> None:
    question = "What is the weather in Paris?"
    first = client.messages.create(**asking(question, tools=TOOLS))
    (call,) = first.content
    assert call.type == "tool_use"
    assert (call.name, call.input, first.stop_reason) == (
        "get_weather",
        {"city": "Paris"},
        "tool_use",
    )
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": first.content},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "21 C"}],
        },
    ]
    after = client.messages.create(**asking(tools=TOOLS) | {"messages": messages})
    assert text_of(after) == "The answer is 21 C."
    assert (after.usage.cache_read_input_tokens or 0) > 0


def test_a_tool_that_must_be_called_is(client: Anthropic) -> None:
    choice = {"type": "tool", "name": "read_file"}
    with client.messages.stream(**asking("Hello.", tools=TOOLS, tool_choice=choice)) as stream:
        (call,) = stream.get_final_message().content
    assert call.type == "tool_use"
    assert call.name == "read_file"
    assert isinstance(call.input, dict)
    assert list(call.input) == ["path"]


def test_counting_gives_what_the_answer_reads(client: Anthropic, trained_service: Service) -> None:
    forget_prefixes(trained_service)
    body = asking(tools=TOOLS)
    counted = client.messages.count_tokens(
        model=MODEL, messages=body["messages"], tools=body["tools"]
    )
    assert client.messages.create(**body).usage.input_tokens == counted.input_tokens


def test_asyncio(trained_url: str) -> None:
    async def ask() -> Message:
        async with (
            AsyncAnthropic(base_url=trained_url, api_key="none", max_retries=0) as client,
            client.messages.stream(**asking(max_tokens=10)) as stream,
        ):
            return await stream.get_final_message()

    message = asyncio.run(ask())
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 10)


def test_stop_sequences_are_named(client: Anthropic) -> None:
    text = text_of(client.messages.create(**asking()))
    message = client.messages.create(**asking(stop_sequences=["never!", text[12:16]]))
    assert text_of(message) == text[: text.index(text[12:16])]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", text[12:16])
