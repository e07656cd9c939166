"""From a job to the pieces of its answer: ends, cuts, and what leaving early does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import InternalError
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.scheduler.errors import RequestCancelledError
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.scheduler.ticket import CancelReason
from mtplx.runtime.server.answering import Delta, Thinking, answering
from mtplx.runtime.server.parts import Part, TextPart, ToolCallPart
from tests.support.scripted_owner import Burst, ScriptedBackend, in_bursts, scripted_owner

if TYPE_CHECKING:
    from mtplx.runtime.scheduler.owner import Owner

Play = Callable[..., "tuple[Owner, ScriptedBackend]"]


class Words:
    """Takes text as it is; what follows `end` is not wanted, and `calls` says that a tool was called."""

    def __init__(self, end: str = "", *, calls: bool = False) -> None:
        self.has_tool_calls = calls
        self._end = end
        self._seen = ""

    @property
    def is_finished(self) -> bool:
        return bool(self._end) and self._end in self._seen

    def feed(self, text: str) -> list[Part]:
        self._seen += text
        return [TextPart(text)] if text else []

    def finish(self) -> list[Part]:
        return [ToolCallPart(0, "call", "f")] if self.has_tool_calls else []


@pytest.fixture
def play() -> Iterator[Play]:
    """Starts an owner that plays bursts."""
    owners: list[Owner] = []

    def start(bursts: Iterable[Burst], **options: float) -> tuple[Owner, ScriptedBackend]:
        backend = ScriptedBackend(lambda _job: bursts, **options)  # type: ignore[arg-type]
        owners.append(scripted_owner(backend))
        return owners[-1], backend

    yield start
    for owner in owners:
        owner.stop(0.0)


def job(max_tokens: int = 100, deadline_s: float | None = None) -> Job:
    options = GenerationOptions(max_tokens=max_tokens)
    return Job(id="j", prompt=[1, 2, 3], options=options, deadline_s=deadline_s)


def collect(
    owner: Owner, parser: Words, thinking: Thinking | None = None, wanted: Job | None = None
) -> list[Delta]:
    """All deltas; what they end with is raised behind them."""
    found: list[Delta] = []

    async def read() -> None:
        async with answering(owner, wanted or job(), parser, thinking) as deltas:
            async for delta in deltas:
                found.append(delta)

    try:
        asyncio.run(read())
    except Exception as error:
        error.found = found  # type: ignore[attr-defined]
        raise
    return found


def text_of(deltas: Iterable[Delta]) -> str:
    return "".join(part.text for d in deltas for part in d.parts if isinstance(part, TextPart))


@pytest.mark.parametrize("width", [1, 3, 100])
def test_the_pieces_are_the_answer_and_the_last_has_its_end(play: Play, width: int) -> None:
    owner, backend = play(in_bursts("some é text", width), prefill_steps=3)
    deltas = collect(owner, Words())
    assert [d.progress for d in deltas[:3]] == [(1, 3), (2, 3), (3, 3)]
    assert text_of(deltas) == "some é text"
    assert [d.finish_reason for d in deltas] == [None] * (len(deltas) - 1) + ["stop"]
    assert deltas[-1].generation is not None
    assert sum(d.tokens for d in deltas) == deltas[-1].generation.stats.completion_tokens
    assert len(backend.jobs) == 1


@pytest.mark.parametrize(
    ("max_tokens", "reason"), [(100, "tool_calls"), (3, "length")], ids=["whole", "cut"]
)
def test_a_call_is_the_reason_unless_the_budget_was(
    play: Play, max_tokens: int, reason: str
) -> None:
    owner, _ = play(["call"])
    deltas = collect(owner, Words(calls=True), wanted=job(max_tokens))
    assert deltas[-1].finish_reason == reason
    assert deltas[-1].parts[-1] == ToolCallPart(0, "call", "f")


def test_what_nobody_wants_is_not_made(play: Play) -> None:
    endless = (burst for _ in range(100_000) for burst in ("more ", 0.001))
    owner, _ = play(["wanted END", 0.05, *["not wanted"], *endless])
    deltas = collect(owner, Words("END"), wanted=job(100_000))
    assert text_of(deltas) == "wanted END"
    assert deltas[-1].generation is not None
    assert deltas[-1].generation.stats.completion_tokens < 1000


def test_leaving_early_ends_the_job(play: Play) -> None:
    owner, _ = play(burst for _ in range(100_000) for burst in ("x", 0.001))

    async def leave() -> None:
        async with answering(owner, job(100_000), Words()) as deltas:
            async for delta in deltas:
                if delta.parts:
                    return

    asyncio.run(leave())
    for _ in range(500):
        if not owner.health().active:
            break
        asyncio.run(asyncio.sleep(0.01))
    assert owner.health().active == 0
    assert owner.totals.to_json()["requests_cancelled"]["client"] == 1


@pytest.mark.parametrize("reason", [CancelReason.ADMIN, CancelReason.SHUTDOWN])
def test_a_cut_by_others_is_raised_behind_what_was_said(play: Play, reason: CancelReason) -> None:
    bursts: list[Burst] = ["before "]
    owner, _ = play(bursts)
    bursts += [lambda: owner.cancel("j", reason), "never seen"]
    with pytest.raises(RequestCancelledError) as raised:
        collect(owner, Words())
    assert raised.value.reason is reason
    assert text_of(raised.value.found) == "before "  # type: ignore[attr-defined]


def test_the_deadline_counts_the_prompt(play: Play) -> None:
    owner, _ = play(["late"], prefill_steps=100, prefill_step_s=0.02)
    with pytest.raises(RequestCancelledError) as raised:
        collect(owner, Words(), wanted=job(deadline_s=0.1))
    assert raised.value.reason is CancelReason.DEADLINE


def test_a_failure_is_raised_behind_what_was_said_and_tells_no_prompt(play: Play) -> None:
    owner, _ = play(["before ", ValueError("secret prompt")])
    with pytest.raises(InternalError) as raised:
        collect(owner, Words())
    assert text_of(raised.value.found) == "before "  # type: ignore[attr-defined]
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("tokens", "thinking", "count"),
    [
        ([5, 6, 9, 7], Thinking(end=(9,), has_begun=True), 3),
        ([5, 6, 7], Thinking(end=(9,), has_begun=True), 3),
        ([5, 6, 9, 7], Thinking(end=(9,), has_begun=False), 0),
        ([8, 6, 9, 7], Thinking(end=(9,), has_begun=False, start=(8,)), 3),
        ([6, 8, 9, 7], Thinking(end=(9,), has_begun=False, start=(8,)), 0),
        ([1, 2, 3, 4, 5], Thinking(end=(3, 4), has_begun=True), 4),
        ([1, 2], Thinking(end=(), has_begun=True), 0),
        ([], Thinking(end=(9,), has_begun=True), 0),
    ],
)
def test_reasoning_is_counted_with_its_markers(
    tokens: list[int], thinking: Thinking, count: int
) -> None:
    assert thinking.count(tokens) == count
