"""Marks, cuts and forks: a cache that went back, or its copy, is one that never went further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.contracts.errors import InternalError
from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.caches.kv import KVCache
from mtplx.runtime.caches.quantized import QuantizedKVCache
from mtplx.runtime.caches.recurrent import RecurrentCache
from mtplx.runtime.caches.rotating import RotatingKVCache

HEADS, DIM = 2, 64
MAKERS: dict[str, Callable[[], Any]] = {
    "kv": KVCache,
    "quantized": lambda: QuantizedKVCache(bits=8, group_size=32),
    "rotating": lambda: RotatingKVCache(8),
    "recurrent": lambda: RecurrentCache(2),
    "set": lambda: CacheSet([KVCache(), RotatingKVCache(8), RecurrentCache(2)]),
}
DIVISIBLE = ("kv", "quantized")


def append(cache: Any, ids: list[int]) -> None:
    """Rows that depend on their ids, and for a recurrent cache on all ids before."""
    if isinstance(cache, CacheSet):
        for member in cache:
            append(member, ids)
    elif isinstance(cache, RecurrentCache):
        for token in ids:
            before = cache[0]
            state = mx.zeros((1, 4)) if before is None else before
            cache[0] = state * 0.5 + token
            cache[1] = state - token
        cache.advance(len(ids))
    else:
        base = mx.array(ids, dtype=mx.float32)[None, None, :, None]
        shape = (1, HEADS, len(ids), DIM)
        ramp = mx.arange(DIM) / DIM
        cache.update_and_fetch(
            mx.broadcast_to(base + ramp, shape), mx.broadcast_to(base - ramp, shape)
        )
    if not isinstance(cache, CacheSet):
        cache.commit(len(ids))


def content(cache: Any) -> list[np.ndarray[Any, Any]]:
    def flat(snapshot: Any) -> list[np.ndarray[Any, Any]]:
        own = [np.array(array) for array in snapshot.arrays if array is not None]
        return own + [array for part in snapshot.parts for array in flat(part)]

    return flat(cache.snapshot())


def assert_holds(cache: Any, kind: str, ids: list[int]) -> None:
    fresh = MAKERS[kind]()
    if ids:
        append(fresh, ids)
    assert cache.committed == cache.offset == len(ids)
    cache.check()
    for ours, theirs in zip(content(cache), content(fresh), strict=True):
        np.testing.assert_array_equal(ours, theirs)


ids_lists = st.lists(st.integers(0, 50), min_size=1, max_size=40)


@pytest.mark.parametrize("kind", MAKERS)
@given(before=ids_lists, behind=ids_lists, other=ids_lists)
def test_a_cut_forgets_and_a_fork_knows_nothing_of_what_comes_later(
    kind: str, before: list[int], behind: list[int], other: list[int]
) -> None:
    cache = MAKERS[kind]()
    append(cache, before)
    mark = cache.mark()
    append(cache, behind)
    fork = cache.fork(mark)
    assert_holds(fork, kind, before)
    append(fork, other)
    append(cache, other)
    assert_holds(fork, kind, before + other)
    assert_holds(cache, kind, before + behind + other)
    cache.cut(mark)
    assert_holds(cache, kind, before)
    append(cache, behind)
    assert_holds(cache, kind, before + behind)
    assert_holds(fork, kind, before + other)


@pytest.mark.parametrize("kind", MAKERS)
def test_an_empty_cache_can_be_marked(kind: str) -> None:
    cache = MAKERS[kind]()
    mark = cache.mark()
    append(cache, [1, 2, 3])
    fork = cache.fork(mark)
    append(fork, [4])
    assert_holds(fork, kind, [4])


@pytest.mark.parametrize("kind", MAKERS)
def test_only_caches_whose_rows_stay_can_be_marked_anywhere(kind: str) -> None:
    cache = MAKERS[kind]()
    append(cache, list(range(20)))
    assert cache.is_divisible == (kind in DIVISIBLE)
    if not cache.is_divisible:
        with pytest.raises(InternalError):
            cache.mark(7)
        return
    cache.cut(cache.mark(7))
    assert_holds(cache, kind, list(range(7)))
    with pytest.raises(InternalError):
        cache.mark(8)


@pytest.mark.parametrize("kind", DIVISIBLE)
def test_a_mark_behind_the_end_is_refused(kind: str) -> None:
    cache = MAKERS[kind]()
    append(cache, list(range(9)))
    late = cache.mark()
    cache.cut(cache.mark(4))
    for use in (cache.cut, cache.fork):
        with pytest.raises(InternalError, match="9 rows"):
            use(late)


@pytest.mark.parametrize("kind", ["kv", "rotating", "set"])
def test_rows_in_flight_cannot_be_marked(kind: str) -> None:
    cache = MAKERS[kind]()
    for member in cache if kind == "set" else [cache]:
        if not isinstance(member, RecurrentCache):
            member.update_and_fetch(mx.zeros((1, HEADS, 1, DIM)), mx.zeros((1, HEADS, 1, DIM)))
    with pytest.raises(InternalError, match="not committed"):
        cache.mark()
