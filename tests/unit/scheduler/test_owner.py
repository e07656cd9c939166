"""The owner's thread: order, admission, cancelling, deadlines, failures, health and stopping."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from mtplx.contracts.errors import (
    BackendError,
    InternalError,
    InvalidRequestError,
    NumericError,
    ResourceError,
)
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.decode.result import Event
from mtplx.runtime.scheduler.errors import NotReadyError, QueueFullError, RequestCancelledError
from mtplx.runtime.scheduler.job import Job, Prefill, Signal
from mtplx.runtime.scheduler.lanes import make_lane
from mtplx.runtime.scheduler.modes import SchedulerMode
from mtplx.runtime.scheduler.owner import Owner
from mtplx.runtime.scheduler.ticket import CancelReason, Ticket
from tests.support.scripted import END_IDS
from tests.support.scripted_owner import ScriptedBackend


class Steps:
    """A script that answers with the tokens of the prompt, one a step, and knows what it did.

    `gate` set to an event holds every step until that is set; a token in `failures` fails instead.
    """

    def __init__(
        self,
        *,
        gate: threading.Event | None = None,
        failures: dict[int, Exception] | None = None,
    ) -> None:
        self.gate = gate
        self.done: list[str] = []
        self.closed: list[str] = []
        self.threads: set[str] = set()
        self._failures = failures or {}

    def __call__(self, job: Job) -> Iterator[list[int]]:
        try:
            for token in job.prompt:
                self.threads.add(threading.current_thread().name)
                if self.gate is not None:
                    self.gate.wait(5.0)
                self.done.append(job.id)
                if token in self._failures:
                    raise self._failures[token]
                yield [token]
        finally:
            self.closed.append(job.id)


def held() -> tuple[Steps, threading.Event]:
    """Steps that wait for an event."""
    gate = threading.Event()
    return Steps(gate=gate), gate


def job(name: str, prompt: list[int] | None = None, deadline_s: float | None = None) -> Job:
    options = GenerationOptions(max_tokens=100)
    return Job(id=name, prompt=prompt or [1, 2, 3], options=options, deadline_s=deadline_s)


@contextmanager
def owning(
    steps: Steps,
    mode: SchedulerMode = SchedulerMode.SERIAL,
    *,
    queue_size: int = 8,
    max_queued_tokens: int = 10_000,
    watchdog_s: float = 60.0,
    prefill_steps: int = 1,
    refusal: Exception | None = None,
) -> Iterator[Owner]:
    backend = ScriptedBackend(steps, prefill_steps=prefill_steps, refusal=refusal)
    owner = Owner(
        lambda: backend,
        make_lane(mode, queue_size),
        max_queued_tokens=max_queued_tokens,
        watchdog_s=watchdog_s,
    )
    owner.start()
    owner.wait_loaded()
    try:
        yield owner
    finally:
        if steps.gate is not None:
            steps.gate.set()
        assert owner.stop(5.0)


async def read(ticket: Ticket) -> list[Signal]:
    return [signal async for signal in ticket.signals()]


def tokens(signals: list[Signal]) -> list[int]:
    events = [signal for signal in signals if isinstance(signal, Event)]
    return [token for event in events for token in event.token_ids if token not in END_IDS]


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 20.0)

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("did not come about")


def test_jobs_run_in_their_order_on_one_thread() -> None:
    steps = Steps()

    async def test() -> None:
        with owning(steps, prefill_steps=2) as owner:
            tickets = [owner.submit(job(name, [index, 7])) for index, name in enumerate("abcd")]
            answers = await asyncio.gather(*(read(ticket) for ticket in tickets))
        assert [tokens(answer) for answer in answers] == [[0, 7], [1, 7], [2, 7], [3, 7]]
        assert answers[0][:2] == [Prefill(1, 2), Prefill(2, 2)]
        last = answers[0][-1]
        assert isinstance(last, Event)
        assert last.generation is not None
        assert owner.totals.finished == {"stop": 4}
        # Each with its end token.
        assert owner.totals.completion_tokens == 12

    run(test)
    assert steps.done == [name for name in "abcd" for _ in range(2)]
    assert steps.threads == {"mtplx-owner"}


def test_what_is_wrong_with_a_job_is_raised_before_it_is_queued() -> None:

    async def test() -> None:
        with owning(Steps(), refusal=InvalidRequestError("no", key="depth")) as owner:
            with pytest.raises(InvalidRequestError):
                owner.submit(job("a"))
            assert owner.health()[:4] == (True, None, 0, 0)

    run(test)


@pytest.mark.parametrize(
    ("mode", "waiting"),
    [(SchedulerMode.SERIAL, 2), (SchedulerMode.HYPER, 0), (SchedulerMode.SOLO_MTP, 0)],
)
def test_a_lane_takes_what_it_says_and_refuses_the_rest(mode: SchedulerMode, waiting: int) -> None:
    steps, gate = held()

    async def test() -> None:
        with owning(steps, mode, queue_size=2) as owner:
            tickets = [owner.submit(job("first"))]
            await until(lambda: owner.health().active == 1 and owner.health().queued == 0)
            tickets += [owner.submit(job(f"w{number}")) for number in range(waiting)]
            for _ in range(3):
                with pytest.raises(QueueFullError) as refused:
                    owner.submit(job("more"))
                assert refused.value.retry_after_s >= 1
            assert owner.health()[2:4] == (1, waiting)
            gate.set()
            for ticket in tickets:
                assert tokens(await read(ticket)) == [1, 2, 3]
            await until(lambda: owner.health().active == 0)
            assert tokens(await read(owner.submit(job("after")))) == [1, 2, 3]
            assert owner.stats()["requests_refused"] == 3
            assert owner.stats()["scheduler_mode"] == mode.value

    run(test)


def test_tokens_that_wait_are_bounded_but_one_request_always_may() -> None:
    steps, _gate = held()

    async def test() -> None:
        with owning(steps, max_queued_tokens=150) as owner:
            owner.submit(job("runs"))
            await until(lambda: owner.health().active == 1)
            owner.submit(job("waits", [1] * 90))
            with pytest.raises(QueueFullError):
                owner.submit(job("too many", [1] * 90))

    run(test)


def test_a_running_job_ends_within_one_step_of_its_cancel() -> None:
    steps, gate = held()

    async def test() -> None:
        with owning(steps) as owner:
            ticket = owner.submit(job("a", list(range(50))))
            await until(lambda: owner.health().active == 1)
            assert owner.cancel("a")
            assert owner.cancel("a")
            gate.set()
            answer = await read(ticket)
            assert isinstance(answer[-1], Event)
            assert answer[-1].finish_reason == "interrupted"
            assert len(steps.done) <= 1
            assert not owner.cancel("a")
            assert not owner.cancel("never")
            assert owner.totals.cancelled == {"admin": 1}
            assert steps.closed == ["a"]

    run(test)


def test_a_waiting_job_that_is_cancelled_frees_its_place_at_once() -> None:
    steps, gate = held()

    async def test() -> None:
        with owning(steps, queue_size=1) as owner:
            running = owner.submit(job("runs"))
            await until(lambda: owner.health().active == 1)
            waiting = owner.submit(job("waits"))
            owner.release(waiting)
            assert owner.health().queued == 0
            with pytest.raises(RequestCancelledError) as cancelled:
                await read(waiting)
            assert cancelled.value.reason is CancelReason.CLIENT
            other = owner.submit(job("other"))
            gate.set()
            assert tokens(await read(running)) == tokens(await read(other)) == [1, 2, 3]
        assert "waits" not in steps.done

    run(test)


@pytest.mark.parametrize("is_running", [True, False])
def test_a_deadline_ends_a_job_wherever_it_is(is_running: bool) -> None:
    steps, gate = held()

    async def test() -> None:
        with owning(steps) as owner:
            if not is_running:
                owner.submit(job("before"))
                await until(lambda: owner.health().active == 1)
            ticket = owner.submit(job("late", deadline_s=0.05))
            await asyncio.sleep(0.1)
            assert ticket.is_cancelled
            assert ticket.cancel_reason is CancelReason.DEADLINE
            gate.set()
            if is_running:
                last = (await read(ticket))[-1]
                assert isinstance(last, Event)
                assert last.finish_reason == "interrupted"
            else:
                with pytest.raises(RequestCancelledError, match="deadline"):
                    await read(ticket)

    run(test)


def test_a_deadline_that_is_kept_changes_nothing() -> None:
    async def test() -> None:
        with owning(Steps()) as owner:
            ticket = owner.submit(job("a", deadline_s=0.2))
            assert tokens(await read(ticket)) == [1, 2, 3]
            await asyncio.sleep(0.3)
            assert owner.totals.cancelled == {}

    run(test)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (NumericError("NaN"), NumericError),
        (MemoryError("out"), ResourceError),
        (RuntimeError("[malloc] Unable to allocate 4 bytes"), ResourceError),
        (RuntimeError("shapes"), InternalError),
        (KeyError("x"), InternalError),
    ],
)
def test_one_job_fails_and_the_next_is_served(
    failure: Exception, expected: type[BaseException]
) -> None:
    steps = Steps(failures={9: failure})

    async def test() -> None:
        with owning(steps) as owner:
            bad, good = owner.submit(job("bad", [9])), owner.submit(job("good"))
            with pytest.raises(expected):
                await read(bad)
            assert tokens(await read(good)) == [1, 2, 3]
            assert sum(owner.totals.failed.values()) == 1

    run(test)
    assert steps.closed == ["bad", "good"]


def test_a_step_that_does_not_end_is_seen() -> None:
    steps, gate = held()

    async def test() -> None:
        with owning(steps, watchdog_s=0.05) as owner:
            assert owner.health().is_ready
            ticket = owner.submit(job("stuck"))
            await asyncio.sleep(0.15)
            health = owner.health()
            assert not health.is_ready
            assert "no step has ended" in (health.reason or "")
            gate.set()
            await read(ticket)
            await until(lambda: owner.health().is_ready)

    run(test)


def test_idle_time_is_no_fault() -> None:
    with owning(Steps(), watchdog_s=0.01) as owner:
        time.sleep(0.05)
        assert owner.health().is_ready


def test_a_model_that_does_not_load_says_why() -> None:
    def fail() -> ScriptedBackend:
        raise BackendError("no MLX")

    owner = Owner(fail, make_lane(SchedulerMode.SERIAL, 1))

    async def test() -> None:
        with pytest.raises(NotReadyError, match="being loaded"):
            owner.submit(job("a"))

    assert owner.health().reason == "the model is being loaded"
    run(test)
    owner.start()
    with pytest.raises(BackendError, match="no MLX"):
        owner.wait_loaded()
    assert "no MLX" in (owner.health().reason or "")


def test_stopping_lets_jobs_end_and_takes_no_more() -> None:
    steps, gate = held()

    async def test() -> None:
        with owning(steps) as owner:
            tickets = [owner.submit(job(name)) for name in "ab"]
            stopping = asyncio.create_task(asyncio.to_thread(owner.stop, 5.0))
            await until(lambda: owner.health().reason == "the server is stopping")
            with pytest.raises(NotReadyError, match="stopping"):
                owner.submit(job("c"))
            gate.set()
            for ticket in tickets:
                assert tokens(await read(ticket)) == [1, 2, 3]
            assert await stopping

    run(test)


def test_stopping_cuts_what_takes_longer_than_its_grace() -> None:
    steps, gate = held()

    async def test() -> None:
        with owning(steps) as owner:
            running, waiting = owner.submit(job("a")), owner.submit(job("b"))
            await until(lambda: owner.health().active == 1)
            stopping = asyncio.create_task(asyncio.to_thread(owner.stop, 0.05))
            with pytest.raises(RequestCancelledError, match="shutdown"):
                await read(waiting)
            gate.set()
            last = (await read(running))[-1]
            assert isinstance(last, Event)
            assert last.finish_reason == "interrupted"
            assert await stopping

    run(test)


def test_a_reader_that_is_slow_loses_nothing_and_stops_nobody() -> None:
    async def test() -> None:
        with owning(Steps()) as owner:
            slow = owner.submit(job("slow", list(range(100))))
            fast = owner.submit(job("fast", list(range(100))))
            assert tokens(await read(fast)) == list(range(100))
            got = []
            async for signal in slow.signals():
                got.append(signal)
                await asyncio.sleep(0)
            assert tokens(got) == list(range(100))

    run(test)


@pytest.mark.parametrize("mode", ["ar_batch", "mtp_batch", "cooperative"])
def test_lanes_of_later_versions_are_refused_by_name(mode: str) -> None:
    with pytest.raises(InvalidRequestError, match="serial, solo_mtp, hyper") as refused:
        make_lane(SchedulerMode(mode), 4)
    assert refused.value.key == "scheduler_mode"
    assert mode in refused.value.message
