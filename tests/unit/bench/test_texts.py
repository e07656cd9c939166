"""The suite of prompts, and long prompts made of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mtplx.contracts.inspection import inspect_folder
from mtplx.runtime.bench.texts import ENDING, long_prompt, read_texts
from mtplx.runtime.tuning.prompts import MOST_PROMPTS, PROMPTS, SUITE, choose_prompts, domain_of
from tests.conftest import TinyFactory

PASSAGES = [[1, 2, 3], [4, 5], [6]]


def test_there_are_ten_prompts_of_each_domain() -> None:
    assert {domain: len(prompts) for domain, prompts in SUITE.items()} == {
        "code": 10,
        "prose": 10,
        "chat": 10,
    }
    texts = [prompt.text for prompts in SUITE.values() for prompt in prompts]
    assert len(set(texts)) == len(texts) == 3 * MOST_PROMPTS
    assert all(prompt.domain == domain for domain, each in SUITE.items() for prompt in each)


def test_the_first_of_each_domain_are_chosen_under_stable_names() -> None:
    assert tuple(choose_prompts(1).values()) == PROMPTS
    assert list(choose_prompts(2)) == [
        "code-1",
        "code-2",
        "prose-1",
        "prose-2",
        "chat-1",
        "chat-2",
    ]
    assert {domain_of(name) for name in choose_prompts(10)} == set(SUITE)


@given(st.integers(1, 60), st.lists(st.integers(7, 9), min_size=1, max_size=8))
def test_a_long_prompt_has_its_length_and_its_ending(length: int, ending: list[int]) -> None:
    found = long_prompt(PASSAGES, ending, length)
    assert len(found) == length
    assert found[-len(ending) :] == ending[-length:]
    assert found == long_prompt(PASSAGES, ending, length)


def test_passages_come_in_another_order_each_time_around() -> None:
    passages = [[number] for number in range(20)]
    found = long_prompt(passages, [99], 61)
    rounds = [found[:20], found[20:40], found[40:60]]
    assert all(sorted(each) == list(range(20)) for each in rounds)
    assert rounds[0] != rounds[1] != rounds[2]


def test_the_suite_is_encoded_as_the_model_reads_it(shared_tiny: TinyFactory) -> None:
    texts = read_texts(inspect_folder(shared_tiny("mimo", vocab=300)))
    assert len(texts.prompts) == 30
    assert texts.note is None
    # One token a byte, and a chat gets its template around it.
    assert len(texts.prompts["code-1"]) == len(SUITE["code"][0].text)
    assert len(texts.prompts["chat-1"]) > len(SUITE["chat"][0].text)
    assert texts.long_prompt(700)[-len(texts.prompts[ENDING]) :] == texts.prompts[ENDING]


def test_without_a_template_chats_go_as_they_are_and_it_is_said(
    shared_tiny: TinyFactory,
) -> None:
    folder = shared_tiny("mimo", vocab=300, chat_template=False)
    texts = read_texts(inspect_folder(folder))
    assert len(texts.prompts["chat-1"]) == len(SUITE["chat"][0].text)
    assert texts.note is not None
