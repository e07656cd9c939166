"""The OpenAI API on a trained model, with the official client: real tool calls, real drafts."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.support.real_service import forget_prefixes, wait_idle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openai.types.chat import ChatCompletion

    from mtplx.runtime.server.service import Service

MODEL = "qwen3_5"
QUESTION = "Write a Python function named add. Add two numbers."


def function(name: str, **properties: str) -> dict[str, Any]:
    """A function as the model has seen them in training."""
    descriptions = {
        "get_weather": "Current weather of a city.",
        "add": "Sum of two integers.",
        "read_file": "Read a text file.",
        "search": "Search the documentation.",
    }
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return {
        "type": "function",
        "function": {"name": name, "description": descriptions[name], "parameters": schema},
    }


WEATHER = function("get_weather", city="string")
ADD = function("add", a="integer", b="integer")
READ = function("read_file", path="string")
SEARCH = function("search", query="string", limit="integer")
TOOLS = [WEATHER, ADD, READ]


@pytest.fixture(scope="module")
def client(trained_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{trained_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def asking(text: str = QUESTION, **keys: Any) -> dict[str, Any]:
    plain = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 48,
        "temperature": 0,
    }
    return plain | keys


def ask(client: OpenAI, text: str = QUESTION, **keys: Any) -> ChatCompletion:
    answer: ChatCompletion = client.chat.completions.create(**asking(text, **keys))
    return answer


def calls_of(answer: ChatCompletion) -> list[tuple[str, Any]]:
    """Names and arguments of the calls in an answer."""
    calls = answer.choices[0].message.tool_calls or []
    return [
        (call.function.name, json.loads(call.function.arguments))
        for call in calls
        if call.type == "function"
    ]


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_mtp_on_and_off_give_the_same_text_for_the_same_seed(
    client: OpenAI, trained_service: Service, temperature: float
) -> None:
    texts, accepted = set(), 0
    for extra in (
        {"generation_mode": "ar"},
        {"generation_mode": "mtp", "depth": 1},
        {"depth": 3},
        {"depth": 5},
        {"depth": "auto"},
    ):
        forget_prefixes(trained_service)
        answer = ask(client, temperature=temperature, seed=7, extra_body=extra)
        texts.add(answer.choices[0].message.content)
        assert answer.usage is not None
        details = answer.usage.completion_tokens_details
        assert details is not None
        if extra.get("generation_mode") == "ar":
            assert details.accepted_prediction_tokens == 0
        accepted += details.accepted_prediction_tokens or 0
    assert len(texts) == 1
    assert accepted > 40


def test_a_stream_says_what_the_whole_answer_says(client: OpenAI) -> None:
    whole = ask(client, logprobs=True, top_logprobs=2)
    text, logprobs = "", []
    for chunk in client.chat.completions.create(
        **asking(logprobs=True, top_logprobs=2), stream=True
    ):
        text += chunk.choices[0].delta.content or ""
        found = chunk.choices[0].logprobs
        logprobs += [one.logprob for one in (found.content if found else None) or []]
    assert text == whole.choices[0].message.content
    expected = whole.choices[0].logprobs
    assert expected is not None
    assert expected.content is not None
    assert whole.usage is not None
    assert len(logprobs) == len(expected.content) == whole.usage.completion_tokens
    assert logprobs == pytest.approx([one.logprob for one in expected.content], abs=1e-3)
    assert all(one.logprob == one.top_logprobs[0].logprob for one in expected.content)


@pytest.mark.parametrize(
    ("question", "call"),
    [
        ("What is the weather in Paris?", ("get_weather", {"city": "Paris"})),
        ("Show me the file README.md.", ("read_file", {"path": "README.md"})),
    ],
)
@pytest.mark.parametrize("mode", ["ar", "mtp"])
def test_tools_are_called_as_they_were_learned(
    client: OpenAI, question: str, call: tuple[str, Any], mode: str
) -> None:
    answer = ask(client, question, tools=TOOLS, extra_body={"generation_mode": mode})
    assert calls_of(answer) == [call]
    assert answer.choices[0].finish_reason == "tool_calls"
    pieces: dict[int, str] = {}
    for chunk in client.chat.completions.create(**asking(question, tools=TOOLS), stream=True):
        for piece in chunk.choices[0].delta.tool_calls or []:
            assert piece.function is not None
            pieces[piece.index] = pieces.get(piece.index, "") + (piece.function.arguments or "")
    assert [json.loads(text) for text in pieces.values()] == [call[1]]


def test_the_result_of_a_tool_is_read(client: OpenAI) -> None:
    first = ask(client, "What is the weather in Paris?", tools=TOOLS).choices[0].message
    assert first.tool_calls is not None
    messages = [
        {"role": "user", "content": "What is the weather in Paris?"},
        first.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "21 C"},
    ]
    after = client.chat.completions.create(**asking(tools=TOOLS) | {"messages": messages})
    assert after.choices[0].message.content == "The answer is 21 C."


def test_a_choice_of_tools_is_kept(client: OpenAI) -> None:
    question = "What is the weather in Paris?"
    assert calls_of(ask(client, question, tools=TOOLS, tool_choice="none")) == []
    (required,) = calls_of(ask(client, "Hello.", tools=TOOLS, tool_choice="required"))
    assert required[0] in ("get_weather", "add", "read_file")
    named = {"type": "function", "function": {"name": "add"}}
    ((name, arguments),) = calls_of(ask(client, question, tools=TOOLS, tool_choice=named))
    assert name == "add"
    assert {key: type(value) for key, value in arguments.items()} == {"a": int, "b": int}


@pytest.mark.parametrize("mode", ["ar", "mtp"])
def test_an_answer_has_the_form_that_a_schema_says(client: OpenAI, mode: str) -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["red", "green"]}, "ok": {"type": "boolean"}},
        "required": ["kind", "ok"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    answer = ask(client, max_tokens=200, response_format=form, extra_body={"generation_mode": mode})
    value = json.loads(answer.choices[0].message.content or "")
    assert value["kind"] in ("red", "green")
    assert isinstance(value["ok"], bool)
    assert answer.choices[0].finish_reason == "stop"


def test_sampling_options_change_the_answer(client: OpenAI) -> None:
    plain = ask(client)
    assert ask(client).choices[0].message.content == plain.choices[0].message.content
    first = plain.choices[0].message.content or ""
    stopped = ask(client, stop=[first[10:14], "\n\n\n\n"])
    assert stopped.choices[0].message.content == first[: first.index(first[10:14])]
    three = ask(client, n=3, seed=1, temperature=1.0)
    assert len({choice.message.content for choice in three.choices}) > 1
    again = ask(client, n=3, seed=1, temperature=1.0)
    assert [c.message.content for c in again.choices] == [c.message.content for c in three.choices]


def test_the_next_turn_reads_only_what_is_new(client: OpenAI, trained_service: Service) -> None:
    forget_prefixes(trained_service)
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    first = client.chat.completions.create(**asking() | {"messages": messages})
    said = first.choices[0].message.content
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Thanks."}]
    second = client.chat.completions.create(**asking() | {"messages": messages})
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens or 0
    assert cached > second.usage.prompt_tokens * 0.6
    forget_prefixes(trained_service)
    fresh = client.chat.completions.create(**asking() | {"messages": messages})
    assert fresh.choices[0].message.content == second.choices[0].message.content
    assert fresh.usage is not None
    assert fresh.usage.prompt_tokens_details is not None
    assert fresh.usage.prompt_tokens_details.cached_tokens == 0


def test_leaving_a_stream_frees_the_model(client: OpenAI, trained_service: Service) -> None:
    stream = client.chat.completions.create(**asking(max_tokens=2000, stream=True, stop=None))
    next(iter(stream))
    stream.close()
    wait_idle(trained_service)
    assert ask(client, max_tokens=3).choices[0].finish_reason == "length"


def test_completions_write_code_on(client: OpenAI) -> None:
    keys = {"model": MODEL, "prompt": "def fib(n):", "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**keys)  # type: ignore[call-overload]
    echoed = client.completions.create(**keys, echo=True)  # type: ignore[call-overload]
    assert echoed.choices[0].text == "def fib(n):" + whole.choices[0].text
    plain = client.completions.create(**keys, extra_body={"generation_mode": "ar"})  # type: ignore[call-overload]
    assert plain.choices[0].text == whole.choices[0].text
    assert whole.usage.completion_tokens_details.accepted_prediction_tokens > 0


def test_responses_call_functions(client: OpenAI) -> None:
    tools = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
    question = "What is the weather in Paris?"
    given: list[Any] = [{"role": "user", "content": question}]
    keys: dict[str, Any] = {"model": MODEL, "tools": tools, "temperature": 0}
    first = client.responses.create(input=given, **keys)
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    given += [
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "21 C"},
    ]
    with client.responses.stream(input=given, **keys) as stream:
        assert stream.get_final_response().output_text == "The answer is 21 C."


def test_several_clients_at_once_are_answered_in_turn(trained_url: str) -> None:
    async def ask_all() -> list[Any]:
        async with AsyncOpenAI(
            base_url=f"{trained_url}/v1", api_key="none", max_retries=0
        ) as client:
            return await asyncio.gather(
                *(client.chat.completions.create(**asking(max_tokens=12)) for _ in range(4))
            )

    answers = asyncio.run(ask_all())
    assert len({answer.choices[0].message.content for answer in answers}) == 1
