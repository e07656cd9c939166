"""Completions of prompts without a chat template."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI, OpenAI

from tests.support.scripted import byte_tokens
from tests.support.scripted_owner import LOGPROB, in_bursts
from tests.unit.server.openai.playing import chunks_of
from tests.unit.server.playing import NAME, Playing

if TYPE_CHECKING:
    from starlette.testclient import TestClient

PATH = "/v1/completions"


def asking(prompt: Any = "abc", **keys: Any) -> dict[str, Any]:
    return {"model": NAME, "prompt": prompt, "max_tokens": 50} | keys


def joined(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The choices of a stream as the whole answer has them."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for new in chunk["choices"]:
            choice = choices.setdefault(new["index"], {"text": "", "logprobs": None})
            choice["text"] += new["text"]
            if new["logprobs"] is not None:
                lists = choice["logprobs"] or {key: [] for key in new["logprobs"]}
                choice["logprobs"] = {
                    key: values + new["logprobs"][key] for key, values in lists.items()
                }
            choice["finish_reason"] = new["finish_reason"]
    return [choices[index] for index in sorted(choices)]


@settings(max_examples=30)
@given(
    text=st.sampled_from(["plain é 漢 👩‍💻 text", "", "<think>no</think> markers are text"]),
    width=st.integers(1, 9),
    stop=st.sampled_from([None, "t", ["zz", " "]]),
    echo=st.booleans(),
    logprobs=st.sampled_from([None, 0, 3]),
)
def test_a_stream_joins_to_the_whole_answer(
    http: TestClient,
    playing: Playing,
    text: str,
    width: int,
    stop: Any,
    echo: bool,
    logprobs: int | None,
) -> None:
    keys = {"stop": stop, "echo": echo} | ({} if echo else {"logprobs": logprobs})
    playing.bursts = [text]
    at_once = http.post(PATH, json=asking(**keys)).json()
    playing.bursts = in_bursts(text, width)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = chunks_of(http.post(PATH, json=asking(**keys, **options)).text)
    expected = [
        {key: choice[key] for key in ("text", "logprobs", "finish_reason")}
        for choice in at_once["choices"]
    ]
    seen = joined(chunks)
    if stop is None:
        assert seen == expected
    # How far a burst ran beyond a stop string shows in its log-probabilities alone.
    assert [{**choice, "logprobs": None} for choice in seen] == [
        {**choice, "logprobs": None} for choice in expected
    ]
    assert chunks[-1]["usage"]["prompt_tokens"] == at_once["usage"]["prompt_tokens"]
    assert expected[0]["text"].startswith("abc" if echo else "")


def test_the_prompt_is_read_as_it_is(client: OpenAI, playing: Playing) -> None:
    found = client.completions.create(**asking("<|x|> Hé"))
    assert playing.jobs[-1].prompt == byte_tokens("<|x|> Hé")
    assert found.choices[0].text == "hello"
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(byte_tokens("<|x|> Hé"))
    client.completions.create(**asking([1, 2, 3]))
    assert playing.jobs[-1].prompt == [1, 2, 3]


@pytest.mark.parametrize("prompts", [["one", "two"], [[1, 2], [3]]])
def test_each_prompt_has_its_choices(client: OpenAI, playing: Playing, prompts: Any) -> None:
    found = client.completions.create(**asking(prompts, n=2, echo=True, seed=3))
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    assert [job.options.seed for job in playing.jobs] == [3, 4, 3, 4]
    prefix = [job.prompt for job in playing.jobs]
    assert prefix[0] == prefix[1] != prefix[2] == prefix[3]
    if isinstance(prompts[0], str):
        assert [choice.text for choice in found.choices] == ["onehello"] * 2 + ["twohello"] * 2
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(prefix[0]) + len(prefix[2])


def test_log_probabilities_have_their_old_shape(client: OpenAI, playing: Playing) -> None:
    playing.bursts = ["añb"]
    found = client.completions.create(**asking(logprobs=2))
    lists = found.choices[0].logprobs
    assert lists is not None
    assert lists.tokens is not None
    assert lists.tokens[0] == "a"
    assert lists.tokens[-2] == "b"
    assert lists.token_logprobs == [LOGPROB] * len(lists.tokens)
    assert lists.text_offset == [0, 1, 1, 2, 3]
    assert [len(top) for top in lists.top_logprobs or []] == [2, 1, 1, 2, 2]


def test_asyncio(url: str, playing: Playing) -> None:
    playing.bursts = in_bursts("streamed", 3)

    async def ask() -> str:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            stream = await client.completions.create(**asking(stream=True))
            return "".join([chunk.choices[0].text async for chunk in stream])

    assert asyncio.run(ask()) == "streamed"


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [10**6]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["a"] * 65}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"logprobs": 6}, "logprobs"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(
    http: TestClient, playing: Playing, keys: dict[str, Any], key: str
) -> None:
    answer = http.post(PATH, json=asking() | keys)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"].startswith(key)
    assert playing.jobs == []


def test_an_unknown_model_is_404(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.completions.create(**asking() | {"model": "other"})
