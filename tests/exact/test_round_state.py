"""After every round the caches hold the committed tokens and nothing else."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.decode.round import run_round
from mtplx.runtime.decode.stop import Answer
from tests.exact.scripted_heads import (
    PROMPT,
    assert_state_is_that_of_its_tokens,
    start,
    with_script,
)
from tests.support.tiny_families import FAMILY_NAMES, FamilyName

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtplx.runtime.model import Model

GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_end_tokens": True}
WITH_HEAD = tuple(family for family in FAMILY_NAMES if family != "llama")


@pytest.mark.parametrize("family", WITH_HEAD)
def test_each_number_of_accepted_drafts_leaves_the_state_of_the_kept_tokens(
    models: Callable[[FamilyName], Model], family: FamilyName
) -> None:
    model = models(family)
    plain = model.generate(PROMPT, **GREEDY, depth=0, max_tokens=40)
    text = [*PROMPT, *plain.token_ids]
    accepts = [0, 1, 2, 3, 4, 2, 0, 4]
    wrong, position = set(), len(PROMPT) + 1
    for accept in accepts:
        wrong.add(position + accept)
        position += accept + 1
    scripted = with_script(model, text, wrong)
    request, state = start(scripted, PROMPT, depth=4)
    for accept in accepts:
        done = run_round(request.engine, state, 4, len)
        assert (done.drafted, done.accepted, len(done.tokens)) == (4, accept, accept + 1)
        assert_state_is_that_of_its_tokens(model, state)
    assert state.tokens == text[: len(state.tokens)]


@pytest.mark.parametrize("family", ["qwen3_5", "llama"])
@settings(max_examples=8)
@given(
    depths=st.lists(st.integers(0, 5), min_size=3, max_size=8),
    wrong=st.sets(st.integers(0, 40), max_size=15),
)
def test_any_pattern_of_depths_and_rejections_keeps_the_state(
    models: Callable[[FamilyName], Model],
    family: FamilyName,
    depths: list[int],
    wrong: set[int],
) -> None:
    model = models(family)
    plain = model.generate(PROMPT, **GREEDY, depth=0, max_tokens=48)
    text = [*PROMPT, *plain.token_ids]
    scripted = with_script(model, text, {len(PROMPT) + i for i in wrong})
    request, state = start(scripted, PROMPT, depth=5)
    for depth in depths:
        run_round(request.engine, state, depth, len)
        state.check()
    if family != "llama":
        assert_state_is_that_of_its_tokens(model, state)
    assert state.tokens == text[: len(state.tokens)]


@pytest.mark.parametrize("family", WITH_HEAD)
@pytest.mark.parametrize("inside", [1, 2, 3])
def test_an_end_inside_a_block_leaves_no_row_behind_it(
    models: Callable[[FamilyName], Model], family: FamilyName, inside: int
) -> None:
    model = models(family)
    plain = model.generate(PROMPT, **GREEDY, depth=0, max_tokens=12)
    scripted = with_script(model, [*PROMPT, *plain.token_ids])
    request, state = start(scripted, PROMPT, depth=4)
    answer = Answer(None, max_tokens=inside, end_tokens=frozenset(), stops=())
    done = run_round(request.engine, state, 4, answer.keep)
    assert done.tokens == list(plain.token_ids[1 : 1 + inside])
    assert state.tokens == [*PROMPT, *plain.token_ids[: 1 + inside]]
    assert state.trunk_caches.committed == len(state.tokens) - 1
    assert_state_is_that_of_its_tokens(model, state)


def test_an_end_token_inside_a_block_ends_answer_and_caches_there(
    models: Callable[[FamilyName], Model],
) -> None:
    model = models("mimo")
    plain = model.generate(PROMPT, **GREEDY, depth=0, max_tokens=12)
    ids = list(plain.token_ids)
    end = next(i for i in range(2, 12) if ids.index(ids[i]) == i)
    scripted = with_script(model, [*PROMPT, *ids])
    request, state = start(scripted, PROMPT, depth=8, max_tokens=50)
    answer = Answer(None, max_tokens=50, end_tokens=frozenset({ids[end]}), stops=())
    while answer.finish_reason is None:
        run_round(request.engine, state, 8, answer.keep)
    assert answer.finish_reason == "stop"
    assert state.tokens == [*PROMPT, *ids[: end + 1]]
    assert_state_is_that_of_its_tokens(model, state)


def test_a_stop_string_inside_a_block_ends_tokens_and_caches_there(
    models: Callable[[FamilyName], Model],
) -> None:
    model = models("mimo")
    plain = model.generate(PROMPT, **GREEDY, depth=0, max_tokens=40)
    stop = plain.text[9:12]
    scripted = with_script(model, [*PROMPT, *plain.token_ids])
    for depth in (0, 1, 4, 8):
        found = scripted.generate(PROMPT, **GREEDY, depth=depth, max_tokens=40, stop=[stop])
        assert found.finish_reason == "stop"
        assert found.text == plain.text[: plain.text.index(stop)]
        end = len(found.token_ids)
        assert found.token_ids == plain.token_ids[:end]
        text = model.tokenizer.decode(list(found.token_ids))
        assert text.endswith(stop)


@pytest.mark.parametrize("family", ["qwen3_5", "deepseek_v3", "mimo"])
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_a_round_waits_for_the_device_once(
    models: Callable[[FamilyName], Model],
    monkeypatch: pytest.MonkeyPatch,
    family: FamilyName,
    depth: int,
) -> None:
    request, state = start(models(family), PROMPT, depth=max(depth, 1), repetition_penalty=1.1)
    waits: Counter[str] = Counter()
    for name in ("tolist", "item", "__bool__", "__int__", "__float__", "__array__", "__iter__"):
        if hasattr(mx.array, name):
            monkeypatch.setattr(mx.array, name, _counted(getattr(mx.array, name), waits, name))
    for name in ("eval", "synchronize", "async_eval"):
        monkeypatch.setattr(mx, name, _counted(getattr(mx, name), waits, name))
    for _ in range(3):
        waits.clear()
        run_round(request.engine, state, depth, len)
        assert waits == {"tolist": 1}


def _counted(call: Any, waits: Counter[str], name: str) -> Any:
    def counted(*args: Any, **kwargs: Any) -> Any:
        waits[name] += 1
        return call(*args, **kwargs)

    return counted


@pytest.mark.parametrize("family", WITH_HEAD)
def test_requests_in_turns_see_nothing_of_each_other(
    models: Callable[[FamilyName], Model], family: FamilyName
) -> None:
    model = models(family)
    low = {**GREEDY, "logit_bias": dict.fromkeys(range(10, 21), 100.0), "depth": 2}
    high = {
        "ignore_end_tokens": True,
        "logit_bias": dict.fromkeys(range(40, 51), 100.0),
        "depth": 3,
        "temperature": 0.9,
        "seed": 5,
        "repetition_penalty": 1.1,
    }
    jobs = [([11, 12, 13], low), ([41, 42, 43, 44], high)]
    alone = [model.generate(p, **o, max_tokens=20).token_ids for p, o in jobs]
    assert set(alone[0]) <= set(range(10, 21))
    assert set(alone[1]) <= set(range(40, 51))
    streams = [model.stream(p, **o, max_tokens=20) for p, o in jobs]
    found: list[list[int]] = [[], []]
    for events in zip_longest(*streams):
        for ids, event in zip(found, events, strict=True):
            ids += event.token_ids if event else ()
    assert [tuple(ids) for ids in found] == alone
    again = [model.generate(p, **o, max_tokens=20).token_ids for p, o in (*jobs, jobs[0])]
    assert again == [*alone, alone[0]]


def test_an_abandoned_request_leaves_the_others_unchanged(
    models: Callable[[FamilyName], Model],
) -> None:
    model = models("qwen3_next")
    alone = model.generate(PROMPT, **GREEDY, depth=2, max_tokens=20).token_ids
    kept = model.stream(PROMPT, **GREEDY, depth=2, max_tokens=20)
    ids = list(next(kept).token_ids)
    other: Any = model.stream([40, 41], **GREEDY, depth=3, max_tokens=20)
    next(other)
    other.close()
    for event in kept:
        ids += event.token_ids
    assert tuple(ids) == alone


@pytest.mark.parametrize("value", [0, -1.0])
def test_a_repetition_penalty_without_meaning_is_refused(
    models: Callable[[FamilyName], Model], value: float
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        models("mimo").generate(PROMPT, repetition_penalty=value)
    assert caught.value.key == "repetition_penalty"
