"""The cache of a recurrent layer."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import InternalError
from mtplx.runtime.caches.recurrent import RecurrentCache, Tape

KEPT = 3


def record(cache: RecurrentCache, first: int, num_rows: int) -> None:
    """Rows numbered from `first`; the state after row i is i."""
    before = cache[0] if cache[0] is not None else mx.zeros((1, KEPT, 1))
    new = mx.arange(first, first + num_rows, dtype=mx.float32)[None, :, None]
    window = mx.concatenate([before, new], axis=1)

    def state_after(n: int) -> mx.array:
        return mx.array([float(first + n - 1)])

    cache.record(Tape(num_rows, window, state_after), state_after(num_rows))


def content(cache: RecurrentCache) -> tuple[list[float], list[float]]:
    window, state = cache[0], cache[1]
    assert window is not None
    assert state is not None
    return np.array(window).ravel().tolist(), np.array(state).tolist()


@pytest.mark.parametrize("kept", range(6))
def test_an_armed_cache_keeps_any_number_of_rows(kept: int) -> None:
    cache = RecurrentCache()
    record(cache, 1, 4)
    cache.commit(4)
    cache.arm()
    record(cache, 5, 2)
    record(cache, 7, 3)
    cache.commit(kept)
    last = 4 + kept
    assert content(cache) == ([last - 2, last - 1, last], [last])
    assert cache.offset == cache.committed == last


def test_an_unarmed_cache_keeps_all_rows_or_none() -> None:
    cache = RecurrentCache()
    record(cache, 1, 4)
    with pytest.raises(InternalError, match="no tape"):
        cache.commit(2)
    cache.commit(4)
    record(cache, 5, 4)
    cache.rollback()
    assert content(cache) == ([2, 3, 4], [4])


def test_arming_ends_with_the_commit() -> None:
    cache = RecurrentCache()
    cache.arm()
    record(cache, 1, 2)
    cache.commit(2)
    record(cache, 3, 2)
    with pytest.raises(InternalError, match="no tape"):
        cache.commit(1)


def test_a_layer_that_only_writes_by_index_keeps_all_rows_or_none() -> None:
    cache = RecurrentCache()
    for value in (1.0, 2.0):
        cache.arm()
        cache[0], cache[1] = mx.full((1, KEPT, 1), value), mx.array([value])
        cache.advance(2)
        if value == 1.0:
            cache.commit(2)
    with pytest.raises(InternalError, match="no tape"):
        cache.commit(1)
    cache.rollback()
    assert content(cache) == ([1, 1, 1], [1])
    assert cache.make_mask(4) is None
    assert cache.lengths is None


def test_a_snapshot_is_not_the_live_list() -> None:
    cache = RecurrentCache()
    record(cache, 1, 3)
    cache.commit(3)
    snapshot = cache.snapshot()
    record(cache, 4, 5)
    cache.commit(5)
    cache.restore(snapshot)
    assert content(cache) == ([1, 2, 3], [3])
    assert cache.offset == 3


def test_rows_counted_without_arrays_fail_the_check() -> None:
    cache = RecurrentCache()
    cache.advance(3)
    with pytest.raises(InternalError, match="array is missing"):
        cache.check()
