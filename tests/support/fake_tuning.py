"""Tuning without a machine: a clock that moves when a scripted worker decodes, and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from mtplx.runtime.tuning.job import Job, Outcome
from mtplx.runtime.tuning.record import (
    Depth,
    DepthRow,
    KnownCosts,
    Spread,
    TuningRecord,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from mtplx.runtime.tuning.conditions import Conditions

TTFT_S = 0.05

ABOUT: dict[str, Any] = {
    "device": {"device": "cpu", "back_end": "cpu", "blas": "mkl", "dtypes": ["float32"]},
    "chip": "A chip",
    "v": [1.0, 1.1, 1.3, 1.5, 1.7],
    "c": 0.25,
    "o": 0.01,
    "step_seconds": 0.02,
    "warnings": [],
}


class FakeClock:
    """Seconds that pass only when somebody lets them."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class FakeWorker:
    """Decodes at a normally distributed speed around the mean for its depth, and lets that time pass on the clock.

    The first job of each depth takes `compile_s` longer and shows it in its speed. `kept` is the share of drafts kept
    by depth; `texts` are tokens of depths that say something else than plain decoding.
    """

    def __init__(
        self,
        clock: FakeClock,
        speeds: Mapping[Depth, float],
        *,
        spread: float = 3.0,
        seed: int = 0,
        compile_s: float = 0.0,
        kept: Mapping[Depth, float] | None = None,
        texts: Mapping[Depth, Sequence[int]] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.about: dict[str, Any] = {**ABOUT, **(about or {})}
        self.asked: list[tuple[Depth, int, int]] = []
        self._clock = clock
        self._speeds = speeds
        self._spread = spread
        self._rng = np.random.default_rng(seed)
        self._compile_s = compile_s
        self._kept = kept or {}
        self._texts = texts or {}
        self._seen: set[Depth] = set()

    def run(self, job: Job) -> Outcome:
        """Decode once; `asked` keeps depth, tokens and the first id of the prompt."""
        depth: Depth = "auto" if job.depth is None else job.depth
        self.asked.append((depth, job.max_tokens, job.prompt[0]))
        speed = max(1.0, float(self._rng.normal(self._speeds[depth], self._spread)))
        seconds = job.max_tokens / speed
        if depth not in self._seen:
            self._seen.add(depth)
            seconds += self._compile_s
        self._clock.sleep(TTFT_S + seconds)
        drafted = [100] * (2 if depth == "auto" else depth)
        kept = [round(100 * self._kept.get(depth, 0.8) ** n) for n in range(1, len(drafted) + 1)]
        tokens = list(self._texts.get(depth, range(job.max_tokens)))
        return Outcome(tokens, TTFT_S, job.max_tokens / seconds, drafted, kept)

    def set_speeds(self, speeds: Mapping[Depth, float]) -> None:
        """Other speeds from now on."""
        self._speeds = speeds

    def open(self, _folder: Path, _kv_bits: int | None) -> AbstractContextManager[FakeWorker]:
        """What `tune` opens a worker with; loading takes two seconds."""
        self._clock.sleep(2.0)
        return nullcontext(self)


def a_row(depth: Depth, tok_s: float, *, was_dropped: bool = False) -> DepthRow:
    """A way of decoding that was measured at `tok_s`, where plain decoding reaches 50."""
    shares = tuple(0.8**n for n in range(1, 1 + (2 if depth == "auto" else depth)))
    return DepthRow(
        depth=depth,
        rounds=10,
        tok_s=Spread(median=tok_s, low=tok_s * 0.9, high=tok_s * 1.1),
        gain=None if depth == 0 else Spread(median=tok_s / 50, low=tok_s / 55, high=tok_s / 45),
        acceptance=shares,
        acceptance_by_domain={"code": shares, "chat": shares},
        was_dropped=was_dropped,
        text_equals_plain=True,
    )


def a_record(
    *,
    identity: str = "f" * 64,
    conditions: Conditions | None = None,
    depth: Depth = 1,
    model: str = "a-model",
    time: datetime = datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    costs: KnownCosts | None = None,
) -> TuningRecord:
    """A record that is complete; nothing of it was measured."""
    known = KnownCosts(v=(1.0, 1.1, 1.3, 1.5, 1.7), c=0.25, o=0.01, step_seconds=0.02)
    return TuningRecord(
        identity=identity,
        model=model,
        time=time,
        conditions={"mlx": "1.0", "kv_bits": None} if conditions is None else conditions,
        depth=depth,
        reason=f"{depth} is fastest",
        is_decided=True,
        rounds=10,
        confidence=0.95,
        tokens=96,
        domains=("code", "chat"),
        rows=(
            a_row(0, 50.0),
            a_row(1, 65.0),
            a_row(3, 40.0, was_dropped=True),
            a_row("auto", 60.0),
        ),
        costs=known if costs is None else costs,
    )
