"""Measuring v(M), c and o: what rows, drafts and a round cost on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import mlx.core as mx

from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.decode.depth import Costs
from mtplx.runtime.heads.head import Head
from mtplx.runtime.trunks.trunk import Hidden, Trunk

_CONTEXT = 32
_REPEATS = 6


def measure_costs(trunk: Trunk, head: Head | None, max_rows: int) -> Costs:
    """Times of forwards over 1 to `max_rows` rows and of one draft step, after a short context.

    The shortest of several interleaved runs counts: what else the machine does can only lengthen them. Runs on caches
    of its own; nothing of a sequence is touched.
    """
    caches = trunk.make_caches()
    hidden = _append(trunk, caches, _CONTEXT)
    caches.commit(_CONTEXT)
    times: dict[int, list[float]] = {rows: [] for rows in range(1, max_rows + 1)}
    for _ in range(_REPEATS):
        for rows, seconds in times.items():
            seconds.append(_verify_seconds(trunk, caches, rows))
    shortest = [min(seconds) for seconds in times.values()]
    unit = shortest[0]
    draft = 0.0 if head is None else _draft_seconds(head, hidden) / unit
    overhead = _host_seconds() / unit
    return Costs(tuple(t / unit for t in shortest), draft, overhead, unit)


def _append(trunk: Trunk, caches: CacheSet, rows: int) -> Hidden:
    tokens = mx.arange(rows)[None] % trunk.vocab_size
    return trunk.forward(tokens, caches)


def _verify_seconds(trunk: Trunk, caches: CacheSet, rows: int) -> float:
    def verify() -> None:
        caches.arm()
        hidden = _append(trunk, caches, rows)
        mx.eval(mx.argmax(trunk.logits(hidden.after_norm), axis=-1))

    seconds = _timed(verify)
    caches.rollback()
    return seconds


def _draft_seconds(head: Head, hidden: Hidden) -> float:
    caches = head.make_caches()
    feed = head.feed(hidden)
    head.step(feed, mx.zeros(feed.shape[:2], mx.int32), caches)
    caches.commit(feed.shape[1])
    last = feed[:, -1:]
    mx.eval(last, *caches.arrays())

    def step() -> None:
        output = head.step(last, mx.zeros((1, 1), mx.int32), caches).output
        mx.eval(mx.argmax(head.logits(output), axis=-1))
        caches.rollback()

    return min(_timed(step) for _ in range(_REPEATS))


def _host_seconds() -> float:
    """One small computation with its wait: the part of a round that no row pays for."""

    def sync() -> None:
        mx.concatenate([mx.zeros((3,)), mx.ones((4,))]).tolist()

    return min(_timed(sync) for _ in range(_REPEATS))


def _timed(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
