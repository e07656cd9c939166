"""A conversation kept in the caches answers as one that is read again from its beginning."""

from __future__ import annotations

import dataclasses
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

from mtplx.contracts.errors import InvalidRequestError, NumericError, PromptTooLongError
from mtplx.runtime.loading.folder import load
from tests.exact.scripted_heads import assert_state_is_that_of_its_tokens
from tests.support.ties import explain
from tests.support.tiny_families import FAMILY_NAMES, FamilyName

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtplx.runtime.decode.result import Event, Generation
    from mtplx.runtime.model import Model
    from mtplx.runtime.sessions.chat import ChatSession
    from tests.conftest import TinyFactory

TIE = 1e-3
SAYS = ("hello there", "and now?", "well, (a) or (b)")
OPTIONS: dict[str, Any] = {
    "temperature": 0.0,
    "depth": 3,
    "max_tokens": 14,
    "ignore_end_tokens": True,
    "system": "be brief",
}


@pytest.fixture(scope="module")
def models(shared_tiny: TinyFactory) -> Callable[..., Model]:
    held: dict[str, Model] = {}

    def get(family: FamilyName, **options: Any) -> Model:
        key = f"{family} {options}"
        if key not in held:
            hidden = 128 if options else 32  # heads of 64 for the groups of a quantised cache
            held[key] = load(shared_tiny(family, hidden=hidden), **options)
        return held[key]

    return get


def depth_of(model: Model) -> int:
    return 3 if model.has_head else 0


def answer(session: ChatSession, text: str, **options: Any) -> Generation:
    """A whole turn."""
    events = list(session.send(text, **options))
    assert events[-1].generation is not None
    return events[-1].generation


def assert_warm_is_cold(model: Model, warm: Generation, options: dict[str, Any]) -> None:
    """The same prompt without a session gives the same tokens."""
    prompt = list(warm.prompt_token_ids)
    rest = {key: value for key, value in options.items() if key != "system"}
    cold = model.generate(prompt, **rest)
    gap = explain(model, prompt, cold.token_ids, warm.token_ids, **rest)
    assert gap is None or gap < TIE


def talk(model: Model, options: dict[str, Any]) -> ChatSession:
    """Three turns, each compared with a run from nothing."""
    session = model.session(**options)
    for number, text in enumerate(SAYS):
        turn = answer(session, text)
        assert turn.prompt_token_ids == tuple(model.encode_prompt(session.messages[:-1]))
        assert (turn.stats.reused_tokens > 0) == (number > 0)
        assert_warm_is_cold(model, turn, options)
    return session


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_three_turns_warm_are_three_turns_cold(
    models: Callable[..., Model], family: FamilyName
) -> None:
    model = models(family)
    session = talk(model, {**OPTIONS, "depth": depth_of(model)})
    roles = [message["role"] for message in session.messages]
    assert roles == ["system", *["user", "assistant"] * 3]
    totals = session.totals()
    assert totals["turns"] == 3
    assert totals["completion_tokens"] == 3 * OPTIONS["max_tokens"]
    assert totals["reused_tokens"] > 0


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_sampled_turns_depend_on_the_seed_and_not_on_the_cache(
    models: Callable[..., Model], family: FamilyName
) -> None:
    model = models(family)
    talk(model, {**OPTIONS, "depth": depth_of(model), "temperature": 0.8, "seed": 11})


def test_a_quantised_cache_is_continued_like_one_read_again(models: Callable[..., Model]) -> None:
    model = models("mimo", kv_bits=8)
    session = model.session(**OPTIONS)
    for text in SAYS:
        turn = answer(session, text)
        assert_warm_is_cold(model, turn, OPTIONS)
    assert turn.stats.reused_tokens > 0


def test_every_token_of_the_history_is_reused(models: Callable[..., Model]) -> None:
    session = models("mimo").session(**OPTIONS)
    first = answer(session, SAYS[0])
    second = answer(session, SAYS[1])
    # The last token of an answer was never read.
    held = len(first.prompt_token_ids) + len(first.token_ids) - 1
    assert second.stats.reused_tokens == held
    assert not any("read again" in warning for warning in second.warnings)


@pytest.mark.parametrize("family", ["qwen3_5", "mimo"])
@pytest.mark.parametrize("how", ["closed", "interrupted", "left"])
def test_a_turn_cut_short_keeps_what_was_shown(
    models: Callable[..., Model], family: FamilyName, how: str
) -> None:
    model = models(family)
    session = model.session(**OPTIONS)
    answer(session, SAYS[0])
    events: Any = session.send(SAYS[1])
    shown = next(events).text + next(events).text
    if how == "closed":
        events.close()
    elif how == "interrupted":
        session.interrupt()
        *_, last = events
        shown += last.text
        assert last.finish_reason == "interrupted"
    turn = answer(session, SAYS[2])
    assert session.messages[-3] == {"role": "assistant", "content": shown}
    assert [m["role"] for m in session.messages[-3:]] == ["assistant", "user", "assistant"]
    assert turn.stats.reused_tokens > 0
    assert_warm_is_cold(model, turn, OPTIONS)
    events.close()
    assert len(session.messages) == 7


def test_a_turn_that_was_never_started_leaves_no_trace(models: Callable[..., Model]) -> None:
    model = models("qwen3_next")
    session = model.session(**OPTIONS)
    answer(session, SAYS[0])
    before = [dict(message) for message in session.messages]
    unused: Any = session.send("nobody reads this")
    assert session.messages == before
    unused.close()
    assert session.messages == before
    assert_warm_is_cold(model, answer(session, SAYS[1]), OPTIONS)


@pytest.mark.parametrize("family", ["qwen3_5", "deepseek_v3"])
def test_an_answer_that_reads_differently_goes_back_to_before_it(
    models: Callable[..., Model], family: FamilyName
) -> None:
    model = models(family)
    session = model.session(**OPTIONS)
    first = answer(session, SAYS[0])
    session.messages[-1]["content"] = "abc"
    second = answer(session, SAYS[1])
    assert second.stats.reused_tokens == len(first.prompt_token_ids)
    assert_warm_is_cold(model, second, OPTIONS)


def test_a_changed_question_is_read_again_from_the_beginning(models: Callable[..., Model]) -> None:
    model = models("qwen3_5")
    session = model.session(**OPTIONS)
    answer(session, SAYS[0])
    session.messages[1]["content"] = "something else"
    second = answer(session, SAYS[1])
    assert second.stats.reused_tokens == 0
    told = [warning for warning in second.warnings if "read again" in warning]
    assert told == [
        f"the cache does not continue this conversation: all {len(second.prompt_token_ids)} tokens are read again"
    ]
    assert_warm_is_cold(model, second, OPTIONS)


def test_a_reset_forgets_all_but_the_system_message(models: Callable[..., Model]) -> None:
    model = models("mimo")
    session = model.session(**OPTIONS)
    first = answer(session, SAYS[0])
    running: Any = session.send(SAYS[1])
    next(running)
    session.reset()
    assert session.messages == [{"role": "system", "content": "be brief"}]
    assert session.totals()["turns"] == session.totals()["context_tokens"] == 0
    again = answer(session, SAYS[0])
    assert again.token_ids == first.token_ids
    assert again.stats.reused_tokens == 0


class Failing:
    """A trunk that fails in one of its next forwards, in the middle of a round."""

    def __init__(self, trunk: Any) -> None:
        self._trunk = trunk
        self.error: BaseException | None = None
        self.after = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trunk, name)

    def forward(self, tokens: mx.array, caches: Any) -> Any:
        hidden = self._trunk.forward(tokens, caches)
        if self.error is not None:
            self.after -= 1
            if self.after < 0:
                error, self.error = self.error, None
                raise error
        return hidden


@pytest.mark.parametrize("family", ["qwen3_next", "mimo"])
@pytest.mark.parametrize(
    "error", [NumericError("NaN"), KeyboardInterrupt(), MemoryError()], ids=repr
)
@pytest.mark.parametrize("after", [0, 2])
def test_an_error_ends_one_turn_and_not_the_conversation(
    models: Callable[..., Model], family: FamilyName, error: BaseException, after: int
) -> None:
    sound = models(family)
    trunk: Any = Failing(sound.trunk)
    model = dataclasses.replace(sound, trunk=trunk)
    session = model.session(**OPTIONS)
    answer(session, SAYS[0])
    trunk.error, trunk.after = error, after
    events: list[Event] = []
    with pytest.raises(type(error)):
        events.extend(session.send(SAYS[1]))
    if after == 0:
        assert len(session.messages) == 3
    else:
        shown = "".join(event.text for event in events)
        assert session.messages[-1] == {"role": "assistant", "content": shown}
    turn = answer(session, SAYS[2])
    assert turn.stats.reused_tokens == 0
    assert_warm_is_cold(sound, turn, OPTIONS)


def test_a_turn_may_go_without_the_head_and_the_next_with_it(models: Callable[..., Model]) -> None:
    model = models("mimo")
    session = model.session(**OPTIONS)
    depths = (2, 0, 0, 2, 2)
    for text, depth in zip((*SAYS, *SAYS), depths, strict=False):
        turn = answer(session, text, depth=depth)
        assert turn.generation_mode == ("mtp" if depth else "ar")
        assert sum(turn.stats.drafted_by_depth) > 0 or depth == 0
        assert_warm_is_cold(model, turn, {**OPTIONS, "depth": depth})
    assert turn.stats.reused_tokens > 0


def test_the_kept_state_is_sound_after_every_turn(models: Callable[..., Model]) -> None:
    model = models("qwen3_5")
    session = model.session(**OPTIONS)
    for text in SAYS:
        answer(session, text)
        state = session._state
        assert state is not None
        assert_state_is_that_of_its_tokens(model, state)


def test_two_sessions_in_turns_share_nothing(models: Callable[..., Model]) -> None:
    model = models("qwen3_5")
    alone = [answer(model.session(**OPTIONS), text).token_ids for text in SAYS[:2]]
    one, two = model.session(**OPTIONS), model.session(**OPTIONS)
    first, second = one.send(SAYS[0]), two.send(SAYS[1])
    ids: list[list[int]] = [[], []]
    for events in zip_longest(first, second):
        for found, event in zip(ids, events, strict=True):
            found += event.token_ids if event else ()
    assert [tuple(found) for found in ids] == alone
    assert one.messages[1]["content"] == SAYS[0]
    assert two.messages[1]["content"] == SAYS[1]


def test_a_refused_turn_leaves_the_conversation_as_it_was(
    tiny: TinyFactory,
) -> None:
    model = load(tiny("mimo", config_overrides={"max_position_embeddings": 120}))
    session = model.session(**OPTIONS)
    answer(session, "hi")
    before = list(session.messages)
    with pytest.raises(PromptTooLongError):
        session.send("x" * 200)
    for wrong in ({"temp": 1}, {"depth": 99}, {"system": "other"}, {"raw": True}):
        with pytest.raises(InvalidRequestError):
            session.send("hi", **wrong)
    assert session.messages == before
    assert answer(session, "hi").stats.reused_tokens > 0
