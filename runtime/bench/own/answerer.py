"""Doing what a measuring process is asked, with a loaded model of mtplx."""

from __future__ import annotations

import time
from typing import Any

import mlx.core as mx
import psutil

from mtplx.contracts.errors import InternalError
from mtplx.runtime.bench.own.round_probe import RoundProbe
from mtplx.runtime.bench.tasks import (
    CostsTask,
    DecodeTask,
    MemoryTask,
    MemoryUse,
    PrefillTask,
    PrefillTimes,
    Room,
    RoomTask,
    RoundTimes,
    Task,
)
from mtplx.runtime.decode.draft import read_rows
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.diagnostics.backend_probe import gpu_memory
from mtplx.runtime.loading.arrays import named_parameters
from mtplx.runtime.model import Model, parse_options
from mtplx.runtime.request import prepare
from mtplx.runtime.tuning.conditions import chip_name
from mtplx.runtime.tuning.job import Outcome


class Answerer:
    """Answers tasks with `model`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._probe: tuple[CostsTask, RoundProbe] | None = None

    @property
    def about(self) -> dict[str, Any]:
        """`device` as `Model.device`, `chip`, `warnings`, `has_head`, and bytes of the `weights` of trunk and head."""
        model = self._model
        head = None if model.head is None else _nbytes(model.head.module)
        return {
            "device": dict(model.device),
            "chip": chip_name(),
            "warnings": list(model.warnings),
            "has_head": model.has_head,
            "weights": {"trunk": _nbytes(model.trunk.model), "head": head},
        }

    def answer(self, task: Task) -> Outcome | PrefillTimes | MemoryUse | RoundTimes | Room:
        """Do the task."""
        match task:
            case DecodeTask():
                return decode(self._model, task)
            case PrefillTask():
                return read_prompt(self._model, task)
            case MemoryTask():
                return watch_memory(self._model, task)
            case CostsTask():
                return self._round_probe(task).measure(task.rows, task.depth)
            case RoomTask():
                return find_room(self._model)

    def _round_probe(self, task: CostsTask) -> RoundProbe:
        """The probe behind this prompt, kept until another one is asked for."""
        if self._probe is None or self._probe[0] != task:
            self._probe = None  # frees its caches first
            self._probe = (task, RoundProbe(self._model, task))
        return self._probe[1]


def decode(model: Model, task: DecodeTask) -> Outcome:
    """One generation. The model's own sampling defaults play no part: mlx-lm does not know them either."""
    mx.reset_peak_memory()
    found = model.generate(
        task.prompt,
        depth="auto" if task.depth is None else task.depth,
        max_tokens=task.max_tokens,
        temperature=task.temperature,
        top_p=task.top_p,
        top_k=task.top_k,
        min_p=0.0,
        repetition_penalty=1.0,
        seed=task.seed,
        acceptance=task.acceptance,
        prefill_chunk=task.prefill_chunk,
        ignore_end_tokens=True,
    )
    stats = found.stats
    return Outcome(
        tokens=list(found.token_ids),
        ttft_s=stats.ttft_seconds or 0.0,
        decode_tok_s=stats.decode_tok_s or 0.0,
        drafted_by_depth=stats.drafted_by_depth[: stats.deepest],
        accepted_by_depth=stats.accepted_by_depth[: stats.deepest],
        rounds=stats.rounds,
        peak_bytes=mx.get_peak_memory(),
    )


def read_prompt(model: Model, task: PrefillTask) -> PrefillTimes:
    """Prefill up to the first token, then what the head has left to read before its first draft."""
    mx.reset_peak_memory()
    options = _greedy(max_tokens=1, depth=1 if task.use_head else 0, chunk=task.chunk)
    request, state = prepare(model, task.prompt, options), model.new_state(options)
    next(request.events(state))
    ttft = request.stats.ttft_seconds
    if ttft is None:
        raise InternalError("a first token came without its time")
    rest = _head_rest(model, state) if task.use_head else None
    return PrefillTimes(ttft, rest, mx.get_peak_memory())


def _head_rest(model: Model, state: DecodeState) -> float | None:
    """Seconds to read the rows that a draft would read first; None without a head."""
    if model.head is None or state.head_caches is None:
        return None
    start = time.perf_counter()
    step = read_rows(model.head, state)
    mx.eval(step.output, *state.head_caches.arrays())
    return time.perf_counter() - start


def watch_memory(model: Model, task: MemoryTask) -> MemoryUse:
    """Peaks while reading and while decoding, and what the caches hold at the end."""
    options = _greedy(max_tokens=task.max_tokens, depth=task.depth, chunk=task.chunk)
    request, state = prepare(model, task.prompt, options), model.new_state(options)
    mx.reset_peak_memory()
    events = request.events(state)
    next(events)
    prefill_peak = mx.get_peak_memory()
    before = _rows_and_bytes(state)
    mx.reset_peak_memory()
    for _ in events:
        pass
    decode_peak = mx.get_peak_memory()
    trunk, head = (
        _slope(then, now) for then, now in zip(before, _rows_and_bytes(state), strict=True)
    )
    return MemoryUse(
        prefill_peak_bytes=prefill_peak,
        decode_peak_bytes=decode_peak,
        trunk_cache_bytes=state.trunk_caches.nbytes,
        head_cache_bytes=None if state.head_caches is None else state.head_caches.nbytes,
        trunk_bytes_per_token=trunk,
        head_bytes_per_token=head,
    )


def find_room(model: Model) -> Room:
    """Bytes of the caches after one and after two rows, and what memory is free."""
    state = model.new_state(GenerationOptions())
    sizes = []
    for _ in range(2):
        token = mx.zeros((1, 1), dtype=mx.int32)
        hidden = model.trunk.forward(token, state.trunk_caches)
        state.trunk_caches.commit(1)
        if model.head is not None and state.head_caches is not None:
            model.head.step(model.head.feed(hidden), token, state.head_caches)
            state.head_caches.commit(1)
        sizes.append(sum(nbytes for _, nbytes in _rows_and_bytes(state)))
    gpu = gpu_memory()
    free = psutil.virtual_memory().available if gpu is None else gpu["free"]
    return Room(float(sizes[1] - sizes[0]), free)


def _greedy(*, max_tokens: int, depth: int, chunk: int) -> GenerationOptions:
    return parse_options(
        {
            "max_tokens": max_tokens,
            "depth": depth,
            "prefill_chunk": chunk,
            "temperature": 0.0,
            "repetition_penalty": 1.0,
            "ignore_end_tokens": True,
        }
    )


def _rows_and_bytes(state: DecodeState) -> list[tuple[int, int]]:
    """Committed rows, and the bytes of what is in use of them, for the trunk and for the head."""
    return [
        (0, 0) if caches is None else (caches.committed, caches.snapshot().nbytes)
        for caches in (state.trunk_caches, state.head_caches)
    ]


def _slope(then: tuple[int, int], now: tuple[int, int]) -> float | None:
    rows, nbytes = (b - a for a, b in zip(then, now, strict=True))
    return nbytes / rows if rows else None


def _nbytes(module: Any) -> int:
    return sum(value.nbytes for value in named_parameters(module).values())
