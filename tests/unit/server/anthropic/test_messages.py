"""The official client, with and without asyncio, streamed or not."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic

from mtplx.contracts.errors import PromptTooLongError
from mtplx.runtime.scheduler.errors import QueueFullError
from mtplx.runtime.server.sealing import seal
from tests.support.scripted import byte_tokens
from tests.support.scripted_owner import Burst, in_bursts
from tests.unit.server.anthropic.playing import ADD, WEATHER, asking
from tests.unit.server.playing import CALL, NAME, SECOND_CALL, Playing

if TYPE_CHECKING:
    from anthropic.types import Message

    from mtplx.runtime.server.service import Service

THOUGHTFUL = f"Which city?</think>\n\nLet me look.{CALL}"


def answer(client: Anthropic, *, streams: bool, **keys: Any) -> Message:
    """The message, made whole by the client or by the server."""
    body = asking(**keys)
    if not streams:
        message: Message = client.messages.create(**body)
        return message
    with client.messages.stream(**body) as stream:
        return stream.get_final_message()


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streams(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_text_with_its_usage(client: Anthropic, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts("Héllo 👩‍💻", 3)
    message = answer(client, streams=streams)
    assert [block.to_dict() for block in message.content] == [
        {"type": "text", "text": "Héllo 👩‍💻"}
    ]
    assert (message.role, message.type, message.model) == ("assistant", "message", NAME)
    assert message.id.startswith("msg_")
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == len(byte_tokens("Héllo 👩‍💻")) + 1
    assert message.usage.input_tokens == len(playing.jobs[-1].prompt)
    assert message.usage.cache_read_input_tokens == 0
    assert message.usage.cache_creation_input_tokens == 0


def test_thinking_text_and_a_call(client: Anthropic, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 7)
    message = answer(client, streams=streams, tools=[WEATHER], thinking=None)
    thinking, text, call = (block.to_dict() for block in message.content)
    assert thinking["thinking"] == "Which city?"
    assert thinking["signature"]
    assert text["text"] == "\n\nLet me look."
    assert (call["name"], call["input"]) == ("get_weather", {"city": "Pàris ☂"})
    assert message.stop_reason == "tool_use"


def test_parallel_calls_and_one_alone(client: Anthropic, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(CALL + "\n" + SECOND_CALL, 4)
    both = answer(client, streams=streams, tools=[WEATHER, ADD])
    calls = [block for block in both.content if block.type == "tool_use"]
    assert [call.name for call in calls] == ["get_weather", "add"]
    assert len({call.id for call in calls}) == 2
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    one = answer(client, streams=streams, tools=[WEATHER, ADD], tool_choice=choice)
    assert [block.name for block in one.content if block.type == "tool_use"] == ["get_weather"]
    assert one.stop_reason == "tool_use"


def test_no_tools_no_calls(client: Anthropic, playing: Playing, streams: bool) -> None:
    playing.bursts = [CALL]
    for keys in ({}, {"tools": [WEATHER], "tool_choice": {"type": "none"}}):
        message = answer(client, streams=streams, **keys)
        assert [block.to_dict() for block in message.content] == [{"type": "text", "text": CALL}]
        assert message.stop_reason == "end_turn"


def test_thinking_that_is_omitted_comes_back_with_its_signature(
    client: Anthropic, playing: Playing, streams: bool
) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 5)
    hidden = {"type": "adaptive", "display": "omitted"}
    message = answer(client, streams=streams, thinking=hidden, tools=[WEATHER])
    block = message.content[0].to_dict()
    assert block == {"type": "thinking", "thinking": "", "signature": seal("Which city?")}


def test_an_answer_goes_back_as_it_came(client: Anthropic, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 6)
    message = answer(client, streams=streams, tools=[WEATHER], thinking=None)
    result = {"type": "tool_result", "tool_use_id": message.content[-1].to_dict()["id"]}
    playing.bursts = ["Rain.</think>It rains."]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result | {"content": "rain"}]},
    ]
    after = answer(client, streams=streams, messages=messages, tools=[WEATHER], thinking=None)
    assert after.content[-1].to_dict()["text"] == "It rains."
    prompt = bytes(token for token in playing.jobs[-1].prompt if token < 256).decode()
    assert "Let me look." in prompt
    assert '{"city": "Pàris ☂"}' in prompt
    assert prompt.index("Pàris") < prompt.rindex("rain")


def test_events_for_those_who_read_them(client: Anthropic, playing: Playing) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 9)
    with client.messages.stream(**asking(tools=[WEATHER], thinking=None)) as stream:
        events = [
            event
            for event in stream
            if event.type in ("text", "thinking", "signature", "input_json")
        ]
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == ["thinking", "signature", "text", "input_json"]
    pieces = [event.partial_json for event in events if event.type == "input_json"]
    assert json.loads("".join(pieces)) == {"city": "Pàris ☂"}


@pytest.mark.parametrize("streams", [False, True])
def test_asyncio(url: str, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 3)
    body = asking(tools=[WEATHER], thinking=None)

    async def ask() -> Message:
        async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
            if not streams:
                message: Message = await client.messages.create(**body)
                return message
            async with client.messages.stream(**body) as stream:
                return await stream.get_final_message()

    message = asyncio.run(ask())
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]


def test_the_beta_endpoint_and_its_headers(client: Anthropic, playing: Playing) -> None:
    message = client.beta.messages.create(
        **asking(),
        betas=["context-management-2025-06-27", "interleaved-thinking-2025-05-14"],
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    )
    assert message.content[0].to_dict()["text"] == "hello"
    counted = client.beta.messages.count_tokens(model=NAME, messages=asking()["messages"])
    assert counted.input_tokens > 0
    assert len(playing.jobs) == 1


def test_options_reach_the_model(client: Anthropic, playing: Playing) -> None:
    extra = {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "seed": 11,
        "depth": 2,
        "acceptance": "block",
        "generation_mode": "mtp",
    }
    body = asking(stop_sequences=["a", "b", "c", "d", "e"], max_tokens=9)
    message = client.messages.create(**body, extra_body=extra)
    options = playing.jobs[-1].options
    assert (options.temperature, options.top_p, options.top_k) == (0.5, 0.25, 7)
    assert (options.seed, options.depth, options.acceptance, options.mtp) == (11, 2, "block", True)
    assert (options.stop, options.max_tokens) == (("a", "b", "c", "d", "e"), 9)
    assert message.to_dict()["mtplx"]["seed"] == 11
    client.messages.create(**asking(), extra_body={"generation_mode": "ar"})
    assert not playing.jobs[-1].options.mtp


@pytest.mark.parametrize(
    "keys",
    [
        {"tools": [WEATHER, ADD], "tool_choice": {"type": "any"}},
        {"tools": [WEATHER, ADD], "tool_choice": {"type": "tool", "name": "add"}},
        {"tools": [WEATHER | {"strict": True}]},
        {"output_config": {"format": {"type": "json_schema", "schema": ADD["input_schema"]}}},
    ],
    ids=["any", "tool", "strict", "format"],
)
def test_what_needs_a_grammar_gets_one(
    client: Anthropic, playing: Playing, keys: dict[str, Any]
) -> None:
    client.messages.create(**asking(**keys))
    assert playing.jobs[-1].options.constraint is not None
    client.messages.create(**asking(tools=[WEATHER], tool_choice={"type": "auto"}))
    assert playing.jobs[-1].options.constraint is None


def test_an_unknown_model_is_not_found(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="only qwen3") as caught:
        client.messages.create(**asking(model="other"))
    assert caught.value.type == "not_found_error"


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_refusals_of_the_queue_have_their_status(
    client: Anthropic, service: Service, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    def refuse(error: Exception) -> None:
        def submit(_job: object) -> None:
            raise error

        monkeypatch.setattr(service.owner, "submit", submit)

    refuse(QueueFullError("busy.", retry_after_s=3))
    with pytest.raises(anthropic.RateLimitError) as full:
        answer(client, streams=streams)
    assert full.value.response.headers["retry-after"] == "3"
    refuse(PromptTooLongError("the prompt has 9 tokens, the context holds 5"))
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: the prompt has 9"):
        answer(client, streams=streams)


def test_a_failure_in_mid_stream_reaches_the_client(client: Anthropic, playing: Playing) -> None:
    playing.bursts = ["half", ValueError("broken")]
    with (
        pytest.raises(anthropic.APIStatusError, match="while decoding"),
        client.messages.stream(**asking()) as stream,
    ):
        stream.get_final_message()


def test_a_context_that_ends_before_max_tokens_is_told(
    client: Anthropic, playing: Playing, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = service.owner.submit

    def with_room_for_two(job: Any) -> Any:
        options = dataclasses.replace(job.options, max_tokens=2)
        return submit(dataclasses.replace(job, options=options))

    monkeypatch.setattr(service.owner, "submit", with_room_for_two)
    playing.bursts = ["hello"]
    assert client.messages.create(**asking()).stop_reason == "model_context_window_exceeded"


def test_a_client_that_leaves_frees_the_model(
    client: Anthropic, playing: Playing, service: Service
) -> None:
    def endless() -> Iterator[Burst]:
        while True:
            yield "word "
            yield 0.002

    playing.bursts = endless()
    with client.messages.stream(**asking(max_tokens=10**6)) as stream:
        assert next(iter(stream.text_stream)).startswith("word")
    wait_until(lambda: service.owner.health().active == 0)
    playing.bursts = ["next"]
    assert client.messages.create(**asking()).content[0].to_dict()["text"] == "next"


def wait_until(is_so: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.005)
