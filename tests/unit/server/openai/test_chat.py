"""Chat completions with the official client, with and without asyncio, streamed or not."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion

from mtplx.runtime.scheduler.errors import QueueFullError
from tests.support.scripted import byte_tokens
from tests.support.scripted_owner import LOGPROB, in_bursts
from tests.unit.server.openai.playing import ADD, WEATHER, asking
from tests.unit.server.playing import CALL, NAME, SECOND_CALL, Playing

if TYPE_CHECKING:
    from mtplx.runtime.server.service import Service

THOUGHTFUL = f"Which city?</think>\n\nLet me look.{CALL}"
EXTRA = ("depth", "acceptance", "generation_mode", "top_k", "min_p", "repetition_penalty")


def split(keys: dict[str, Any]) -> dict[str, Any]:
    """A request for the client, which takes what it does not know as `extra_body`."""
    extra = {key: keys[key] for key in EXTRA if key in keys}
    known = {key: value for key, value in asking(**keys).items() if key not in extra}
    return known | ({"extra_body": extra} if extra else {})


def answer(client: OpenAI, *, streams: bool, **keys: Any) -> ChatCompletion:
    """The answer, made whole by the client or by the server."""
    body = split(keys)
    if not streams:
        whole: ChatCompletion = client.chat.completions.create(**body)
        return whole
    with client.chat.completions.stream(**body, stream_options={"include_usage": True}) as stream:
        return ChatCompletion.model_validate(stream.get_final_completion().model_dump())


def test_text_with_its_usage(client: OpenAI, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts("Héllo 👩‍💻", 3)
    found = answer(client, streams=streams)
    (choice,) = found.choices
    assert choice.message.content == "Héllo 👩‍💻"
    assert (choice.finish_reason, choice.index, found.model) == ("stop", 0, NAME)
    assert found.id.startswith("chatcmpl-")
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(playing.jobs[-1].prompt)
    assert found.usage.completion_tokens == len(byte_tokens("Héllo 👩‍💻")) + 1
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    details = found.usage.completion_tokens_details
    assert details is not None
    # A burst of three tokens is a round that drafted two; the last one here ends after the end token.
    assert details.accepted_prediction_tokens == 2 * (found.usage.completion_tokens // 3)
    assert details.rejected_prediction_tokens == 0


def test_reasoning_text_and_a_call(client: OpenAI, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 7)
    found = answer(client, streams=streams, tools=[WEATHER], reasoning_effort=None)
    (choice,) = found.choices
    said = choice.message.to_dict()
    assert said["reasoning_content"] == "Which city?"
    assert said["content"] == "\n\nLet me look."
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather",
        {"city": "Pàris ☂"},
    )
    assert found.usage is not None
    assert found.usage.completion_tokens_details is not None
    # The markers are tokens of their own in this vocabulary only where the model writes them as such.
    assert found.usage.completion_tokens_details.reasoning_tokens is not None


def test_reasoning_alone_leaves_empty_text(client: OpenAI, playing: Playing, streams: bool) -> None:
    playing.bursts = ["hm hm"]
    (choice,) = answer(client, streams=streams, reasoning_effort=None).choices
    assert choice.message.content in ("", None) if streams else choice.message.content == ""
    assert choice.message.to_dict()["reasoning_content"] == "hm hm"


def test_parallel_calls_and_one_alone(client: OpenAI, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(f"{CALL}\n{SECOND_CALL}", 4)
    tools = [WEATHER, ADD]
    both = answer(client, streams=streams, tools=tools).choices[0].message.tool_calls
    assert both is not None
    assert [call.to_dict()["function"]["name"] for call in both] == ["get_weather", "add"]  # type: ignore[index]
    assert len({call.id for call in both}) == 2
    one = answer(client, streams=streams, tools=tools, parallel_tool_calls=False)
    calls = one.choices[0].message.tool_calls
    assert calls is not None
    assert len(calls) == 1
    assert one.choices[0].finish_reason == "tool_calls"


def test_an_answer_goes_back_as_it_came(client: OpenAI, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 6)
    found = answer(client, streams=streams, tools=[WEATHER], reasoning_effort=None)
    said = found.choices[0].message.model_dump(exclude_none=True)
    # What the client's own stream adds for reading is not part of the public request.
    said.pop("parsed", None)
    for call in said["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
    playing.bursts = ["Rain.</think>It rains."]
    messages = [
        {"role": "user", "content": "hi"},
        said,
        {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "rain"},
    ]
    after = answer(
        client, streams=streams, messages=messages, tools=[WEATHER], reasoning_effort=None
    )
    assert after.choices[0].message.content == "It rains."
    prompt = bytes(token for token in playing.jobs[-1].prompt if token < 256).decode()
    assert "Let me look." in prompt
    assert '{"city": "Pàris ☂"}' in prompt
    assert prompt.index("Pàris") < prompt.rindex("rain")


def test_every_token_has_log_probabilities(client: OpenAI, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts("a漢b", 2)
    found = answer(client, streams=streams, logprobs=True, top_logprobs=2)
    logprobs = found.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    *texts, end = logprobs.content
    assert b"".join(bytes(one.bytes or []) for one in texts).decode() == "a漢b"
    assert end.token
    assert [one.logprob for one in logprobs.content] == [LOGPROB] * (len(texts) + 1)
    assert all(len(one.top_logprobs) == 2 for one in logprobs.content)
    assert len(texts) + 1 == found.usage.completion_tokens  # type: ignore[union-attr]


def test_several_answers_count_the_prompt_once(
    client: OpenAI, playing: Playing, streams: bool
) -> None:
    playing.bursts = ["one"]
    found = answer(client, streams=streams, n=3, seed=5)
    assert [(choice.index, choice.message.content) for choice in found.choices] == [
        (0, "one"),
        (1, "one"),
        (2, "one"),
    ]
    assert [job.options.seed for job in playing.jobs] == [5, 6, 7]
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(playing.jobs[0].prompt)
    assert found.usage.completion_tokens == 3 * 4


def test_options_reach_the_model(client: OpenAI, playing: Playing, streams: bool) -> None:
    answer(
        client,
        streams=streams,
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.5,
        logit_bias={"3": -100, "4": 5.5},
        seed=11,
        stop=["a", "b"],
        max_tokens=9,
        depth=2,
        acceptance="block",
        generation_mode="mtp",
    )
    options = playing.jobs[-1].options
    assert (options.temperature, options.top_p, options.top_k, options.min_p) == (0.5, 0.25, 7, 0.1)
    assert (options.presence_penalty, options.frequency_penalty) == (0.5, -0.5)
    assert options.repetition_penalty == 1.5
    assert options.logit_bias == {3: -100, 4: 5.5}
    assert (options.seed, options.stop, options.max_tokens) == (11, ("a", "b"), 9)
    assert (options.depth, options.acceptance, options.mtp) == (2, "block", True)
    answer(client, streams=streams, generation_mode="ar")
    assert not playing.jobs[-1].options.mtp


@pytest.mark.parametrize(
    "keys",
    [
        {"tools": [WEATHER, ADD], "tool_choice": "required"},
        {
            "tools": [WEATHER, ADD],
            "tool_choice": {"type": "function", "function": {"name": "add"}},
        },
        {"tools": [{"type": "function", "function": ADD["function"] | {"strict": True}}]},
        {"response_format": {"type": "json_object"}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "sum",
                    "strict": True,
                    "schema": ADD["function"]["parameters"],
                },
            }
        },
    ],
    ids=["required", "named", "strict", "json_object", "json_schema"],
)
def test_what_must_have_a_form_is_held_by_a_grammar(
    client: OpenAI, playing: Playing, keys: dict[str, Any]
) -> None:
    client.chat.completions.create(**asking(**keys))
    assert playing.jobs[-1].options.constraint is not None
    client.chat.completions.create(**asking())
    assert playing.jobs[-1].options.constraint is None


@pytest.mark.parametrize("streams", [False, True])
def test_asyncio(url: str, playing: Playing, streams: bool) -> None:
    playing.bursts = in_bursts(THOUGHTFUL, 3)
    body = asking(tools=[WEATHER], reasoning_effort=None)

    async def ask() -> Any:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            if not streams:
                return await client.chat.completions.create(**body)
            async with client.chat.completions.stream(**body) as stream:
                return await stream.get_final_completion()

    message = asyncio.run(ask()).choices[0].message
    assert message.reasoning_content == "Which city?"
    assert message.tool_calls[0].function.name == "get_weather"


def test_messages_of_every_role_reach_the_template(client: OpenAI, playing: Playing) -> None:
    parts = [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]
    client.chat.completions.create(
        **asking(
            messages=[
                {"role": "developer", "content": "be brief"},
                {"role": "user", "content": parts, "name": "ada"},
                {"role": "assistant", "content": "yes"},
                {"role": "user", "content": "more"},
            ]
        )
    )
    prompt = bytes(token for token in playing.jobs[-1].prompt if token < 256).decode()
    assert "be brief" in prompt
    assert "two parts" in prompt
    assert prompt.index("yes") < prompt.index("more")


def test_an_unknown_model_is_404_and_names_those_that_are(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=NAME) as caught:
        client.chat.completions.create(**asking(model="gpt-4"))
    assert caught.value.code == "model_not_found"


def test_a_full_queue_is_429_with_the_seconds_to_wait(
    service: Service, url: str, playing: Playing, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    def refuse(_job: object) -> None:
        raise QueueFullError("the server is busy", retry_after_s=7)

    monkeypatch.setattr(service.owner, "submit", refuse)
    with (
        OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.RateLimitError) as caught,
    ):
        client.chat.completions.create(**asking(stream=streams))
    assert caught.value.response.headers["retry-after"] == "7"
    assert playing.jobs == []


def test_leaving_a_stream_ends_the_job(client: OpenAI, service: Service, playing: Playing) -> None:
    playing.bursts = (burst for _ in range(10_000) for burst in ("x", 0.005))
    stream = client.chat.completions.create(**asking(stream=True, max_tokens=9000))
    next(iter(stream))
    stream.close()
    for _ in range(200):
        if service.owner.health().active == 0:
            break
        asyncio.run(asyncio.sleep(0.01))
    assert service.owner.health().active == 0
    assert next(iter(playing.bursts), None) is not None, "the script was not played to its end"


def test_what_has_no_effect_is_told(client: OpenAI, playing: Playing) -> None:
    found = client.chat.completions.create(**asking(reasoning_effort="high"))
    notes = found.choices[0].to_dict()["mtplx"]["notes"]
    assert any("reasoning_effort has no effect" in note for note in notes)
    assert len(playing.jobs) == 1
