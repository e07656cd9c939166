"""Measurers for tests of `mtplx bench`: a scripted one, and one that works in this process."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from mtplx.contracts.errors import BackendError
from mtplx.runtime.bench import measurer
from mtplx.runtime.bench.measurer import Measurer
from mtplx.runtime.bench.protocol import answer_question
from mtplx.runtime.bench.tasks import (
    CostsTask,
    DecodeTask,
    MemoryTask,
    MemoryUse,
    PrefillTask,
    PrefillTimes,
    Room,
    RoundTimes,
    Task,
)
from mtplx.runtime.tuning.job import Outcome

ABOUT: dict[str, Any] = {
    "device": {
        "device": "cpu",
        "back_end": "cpu",
        "mlx_version": "0",
        "blas": "mkl",
        "dtypes": ["float32"],
    },
    "chip": "scripted",
    "warnings": [],
    "has_head": True,
    "weights": {"trunk": 1000, "head": 100},
}

Speeds = Mapping[int | None, Iterable[float]]


class _Context(Measurer):
    """A measurer that is used as a context manager, as processes are."""

    is_open = False

    def __enter__(self) -> Self:
        self.is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False


class ScriptedMeasurer(_Context):
    """Answers at once: `speeds` by depth come in turn, and every draft but the last one is accepted.

    It dies at a prompt longer than `longest`. `asked` has every task.
    """

    def __init__(
        self,
        speeds: Speeds | None = None,
        *,
        has_head: bool = True,
        longest: int | None = None,
        bytes_per_token: float = 1.0,
        texts: Mapping[int | None, int] | None = None,
        bits: int | None = None,
    ) -> None:
        self.about = {**ABOUT, "has_head": has_head}
        self.asked: list[Task] = []
        self._speeds = {depth: itertools.cycle(each) for depth, each in (speeds or {}).items()}
        self._longest = longest
        self._bytes_per_token = bytes_per_token
        self._texts = texts or {}
        self._bits = bits

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Through the same questions and answers as a process."""
        return answer_question(json.loads(json.dumps(dict(question))), self._answer)

    def _answer(self, task: Task) -> Outcome | PrefillTimes | MemoryUse | RoundTimes | Room:
        self.asked.append(task)
        prompt = getattr(task, "prompt", [])
        if self._longest is not None and len(prompt) > self._longest:
            raise BackendError("the scripted process ended: ValueError: too long")
        match task:
            case DecodeTask():
                return self._decode(task)
            case PrefillTask():
                # Twice as fast without the head, so that ratios tell which way they go.
                seconds = len(task.prompt) / (1000.0 if task.use_head else 2000.0)
                return PrefillTimes(seconds, 0.25 if task.use_head else None, 7)
            case MemoryTask():
                size = len(task.prompt) * (self._bits or 32)
                head = size // 2 if task.depth else None
                return MemoryUse(size + 2, size + 1, size, head, 4.0, 2.0 if head else None)
            case CostsTask():
                return RoundTimes(
                    verify=[1.0 + 0.1 * row for row in range(task.rows)],
                    drafts=[0.5 * (d + 1) for d in range(task.depth)],
                    rounds=[1.25 + 0.6 * d for d in range(task.depth + 1)],
                )
            case _:
                return Room(self._bytes_per_token, 2**30)

    def _decode(self, task: DecodeTask) -> Outcome:
        depth = task.depth if task.depth is not None else 2
        rounds = -(-(task.max_tokens - 1) // max(depth, 1))
        first = self._texts.get(task.depth, 0)
        return Outcome(
            tokens=list(range(first, first + task.max_tokens)),
            ttft_s=0.1,
            decode_tok_s=next(self._speeds.get(task.depth, itertools.repeat(50.0))),
            drafted_by_depth=[rounds] * depth,
            accepted_by_depth=[rounds] * (depth - 1) + [0] * bool(depth),
            rounds=rounds,
            peak_bytes=1000 + depth,
        )


class LocalMeasurer(_Context):
    """Does in this process what `own.process` does in its own."""

    def __init__(self, folder: Path, kv_bits: int | None = None) -> None:
        from mtplx.runtime.bench.own.answerer import Answerer
        from mtplx.runtime.loading.folder import load

        self._answerer = Answerer(load(folder, kv_bits=kv_bits))
        self.about = json.loads(json.dumps(self._answerer.about))

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Through JSON and back, as between processes."""
        answer = answer_question(json.loads(json.dumps(dict(question))), self._answerer.answer)
        told: dict[str, Any] = json.loads(json.dumps(answer))
        return told


OpenOwn = Callable[[Path, int | None], Measurer]


def use_measurers(
    monkeypatch: pytest.MonkeyPatch, own: OpenOwn, stock: Measurer | Exception | None = None
) -> None:
    """Let benchmarks measure with these; a `stock` that is an error is what opening it raises."""

    def open_own(folder: Path, kv_bits: int | None = None) -> Measurer:
        return own(folder, kv_bits)

    def open_stock(_folder: Path) -> Measurer:
        if isinstance(stock, Exception):
            raise stock
        assert stock is not None, "mlx-lm was not to be measured"
        return stock

    monkeypatch.setattr(measurer, "open_own", open_own)
    monkeypatch.setattr(measurer, "open_stock", open_stock)
