"""An answer behind a reused prefix is the answer behind a prompt that was read whole."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, cast

import pytest

from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.decode.result import Event, Generation
from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.scheduler.model_backend import ModelBackend
from tests.conftest import TinyFactory
from tests.exact.scripted_heads import assert_state_is_that_of_its_tokens
from tests.support.ties import explain
from tests.support.tiny_families import FAMILY_NAMES, FamilyName

SYSTEM = [(7 * i) % 50 + 6 for i in range(41)]
FIRST, SECOND, THIRD = [11, 12, 13, 14, 15], [21, 22, 23], [31, 32, 33, 34]
OPTIONS: dict[str, Any] = {
    "temperature": 0.0,
    "max_tokens": 9,
    "ignore_end_tokens": True,
    "prefill_chunk": 16,
    "seed": 5,
}
PLENTY = 1 << 30


def backend(model: Model, bank_bytes: int = PLENTY) -> ModelBackend:
    made = ModelBackend(model, bank_bytes=bank_bytes)
    made.bank.max_bytes = bank_bytes
    return made


def job(prompt: list[int], key: str = "", **options: Any) -> Job:
    points = (len(SYSTEM), len(prompt) - 1)
    parsed = GenerationOptions(**{**OPTIONS, **options})
    return Job(id="a", prompt=prompt, options=parsed, checkpoints=points, cache_key=key)


def events(made: ModelBackend, prompt: list[int], **options: Any) -> Iterator[Event]:
    return made.run(job(prompt, **options), lambda: False, lambda _done, _total: None)


def answer(made: ModelBackend, prompt: list[int], **options: Any) -> Generation:
    last = list(events(made, prompt, **options))[-1].generation
    assert last is not None
    for entry in made.bank._entries:
        assert_state_is_that_of_its_tokens(made.model, entry.state)
    return last


def assert_as_if_read_whole(model: Model, warm: Generation, **options: Any) -> None:
    prompt, wanted = list(warm.prompt_token_ids), {**OPTIONS, **options}
    cold = model.generate(prompt, **wanted)
    gap = explain(model, prompt, cold.token_ids, warm.token_ids, **wanted)
    assert gap is None or gap < 1e-3


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("depth", [0, 3])
def test_turns_branches_and_repeats(
    models: Callable[[FamilyName], Model], family: FamilyName, depth: int
) -> None:
    model = models(family)
    how = {"depth": depth if model.has_head else 0}
    made = backend(model)
    first = answer(made, SYSTEM + FIRST, **how)
    assert first.stats.cache_miss == "new_session"
    assert first.stats.reused_tokens == 0
    history = [*SYSTEM, *FIRST, *first.token_ids]

    turn = answer(made, history + SECOND, **how)
    # All but the token sampled last, which nobody has read.
    assert turn.stats.reused_tokens == len(history) - 1
    again = answer(made, history + SECOND, **how)
    assert again.token_ids == turn.token_ids
    assert again.stats.reused_tokens >= len(history + SECOND) - 3
    edited = answer(made, history + THIRD, **how)
    assert edited.stats.reused_tokens >= len(history) - 2
    other = answer(made, SYSTEM + THIRD, **how)
    assert len(SYSTEM) - 1 <= other.stats.reused_tokens <= len(SYSTEM)
    # The branch was copied: the first conversation still goes on where it was.
    back = answer(made, history + SECOND, **how)
    assert back.stats.reused_tokens >= len(history) - 2
    for warm in (first, turn, edited, other, back):
        assert_as_if_read_whole(model, warm, **how)


@pytest.mark.parametrize("family", ["qwen3_5", "mimo"])
def test_settings_and_depth_do_not_matter_to_what_is_reused(
    models: Callable[[FamilyName], Model], family: FamilyName
) -> None:
    model = models(family)
    made = backend(model)
    changes: list[dict[str, Any]] = [
        {"depth": 0},
        {"depth": 4, "temperature": 0.9},
        {"mtp": False, "top_k": 3, "temperature": 0.5},
        {"depth": "auto", "presence_penalty": 0.5, "acceptance": "block", "temperature": 0.7},
        {"depth": 2, "temperature": 0.9, "seed": 8},
    ]
    history = SYSTEM + FIRST
    for number, change in enumerate(changes):
        turn = answer(made, history, **change)
        assert (turn.stats.reused_tokens > 0) == (number > 0)
        if change.get("acceptance") != "block":
            assert_as_if_read_whole(model, turn, **change)
        history = [*history, *turn.token_ids, *SECOND]


@pytest.mark.parametrize("family", ["qwen3_5", "mimo", "llama"])
def test_an_answer_that_is_cut_leaves_what_was_committed(
    models: Callable[[FamilyName], Model], family: FamilyName
) -> None:
    model = models(family)
    made = backend(model)
    running = cast("Generator[Event]", events(made, SYSTEM + FIRST))
    with closing(running):
        got = [*next(running).token_ids, *next(running).token_ids]
    (entry,) = made.bank._entries
    assert_state_is_that_of_its_tokens(model, entry.state)
    turn = answer(made, [*SYSTEM, *FIRST, *got, *SECOND])
    assert turn.stats.reused_tokens == len(SYSTEM + FIRST) + len(got) - 1
    assert_as_if_read_whole(model, turn)


@pytest.mark.parametrize("family", ["qwen3_5", "mimo"])
def test_a_prompt_that_is_cut_is_read_on(
    models: Callable[[FamilyName], Model], family: FamilyName
) -> None:
    model = models(family)
    made = backend(model)
    chunks: list[int] = []
    running = made.run(job(SYSTEM + FIRST), lambda: len(chunks) == 2, lambda *_: chunks.append(1))
    (event,) = running
    assert event.finish_reason == "interrupted"
    assert not event.token_ids
    turn = answer(made, SYSTEM + FIRST)
    assert turn.stats.reused_tokens == 32
    assert_as_if_read_whole(model, turn)


def test_a_step_that_fails_leaves_nothing(models: Callable[[FamilyName], Model]) -> None:
    model = models("mimo")
    made = backend(model)

    def fail(_done: int, _total: int) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        list(made.run(job(SYSTEM + FIRST), lambda: False, fail))
    assert len(made.bank) == 0
    assert answer(made, SYSTEM + FIRST).stats.cache_miss == "new_session"


def test_two_callers_never_share(models: Callable[[FamilyName], Model]) -> None:
    made = backend(models("mimo"))
    answer(made, SYSTEM + FIRST, key="a")
    assert answer(made, SYSTEM + FIRST, key="b").stats.cache_miss == "new_session"
    assert answer(made, SYSTEM + FIRST, key="a").stats.cache_miss is None


def test_disjoint_conversations_in_turns_are_as_alone(
    models: Callable[[FamilyName], Model],
) -> None:
    model = models("qwen3_5")
    made = backend(model)
    prompts = [list(range(10, 21)), list(range(40, 51))]
    for _ in range(2):
        for prompt in prompts:
            assert_as_if_read_whole(model, answer(made, prompt))


def test_a_bank_without_room_reads_everything(models: Callable[[FamilyName], Model]) -> None:
    made = backend(models("mimo"), bank_bytes=0)
    for _ in range(2):
        turn = answer(made, SYSTEM + FIRST)
        assert turn.stats.reused_tokens == 0
        assert turn.stats.cache_miss == "off"


def test_a_quantised_cache_is_reused_as_it_is(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("mimo", hidden=128), kv_bits=8)
    made = backend(model)
    first = answer(made, SYSTEM + FIRST)
    turn = answer(made, [*SYSTEM, *FIRST, *first.token_ids, *SECOND])
    assert turn.stats.reused_tokens > len(SYSTEM)
    assert_as_if_read_whole(model, turn)
