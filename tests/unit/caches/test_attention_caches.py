"""Caches of attention layers hold what a fresh prefill of the committed rows holds."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from mlx_lm.models import cache as mlx_caches
from mlx_lm.models.base import scaled_dot_product_attention

from mtplx.contracts.errors import InternalError, InvalidRequestError, UnsupportedModelError
from mtplx.runtime.caches import rows as row_buffer
from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.caches.kv import KVCache
from mtplx.runtime.caches.quantized import QuantizedKVCache
from mtplx.runtime.caches.rotating import RotatingKVCache
from tests.unit.caches.programs import History, Step, programs

WINDOW = 8
HEADS, DIM = 2, 32


def rows(ids: list[int], *, heads: int = HEADS, dim: int = DIM, salt: int = 0) -> mx.array:
    """[1, heads, len(ids), dim], each row a function of its id alone."""
    made = [np.random.default_rng([i, salt]).standard_normal((heads, dim)) for i in ids]
    return mx.array(np.stack(made, axis=1)[None].astype(np.float32))


def append(cache: Any, ids: list[int]) -> Any:
    return cache.update_and_fetch(rows(ids), rows(ids, salt=1))


def append_latent(cache: Any, ids: list[int]) -> Any:
    return cache.update_and_fetch(rows(ids, heads=1), rows(ids, heads=1, dim=8, salt=1))


def append_to_all(caches: Any, ids: list[int]) -> None:
    for cache in caches:
        append(cache, ids)


def flat(fetched: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(fetched, mx.array):
        return [np.array(fetched)]
    return [array for part in fetched for array in flat(part)]


MAKERS: dict[str, Any] = {
    "kv": (KVCache, append),
    "latent": (KVCache, append_latent),
    "quantized": (lambda: QuantizedKVCache(bits=8, group_size=32), append),
    "rotating": (lambda: RotatingKVCache(WINDOW), append),
}


@pytest.mark.parametrize("name", MAKERS)
@given(program=programs(max_steps=16))
@settings(max_examples=60, deadline=None)
def test_any_history_equals_a_fresh_prefill(name: str, program: list[Step]) -> None:
    make, append_rows = MAKERS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_buffer, "_STEP", 4)  # so that buffers grow and move every few rows
        history = History(make(), append_rows).run(program)
    fresh = make()
    if history.committed:
        append_rows(fresh, history.committed)
        fresh.commit(len(history.committed))
    more = history.fresh_ids(1)
    for left, right in zip(
        flat(append_rows(history.caches, more)), flat(append_rows(fresh, more)), strict=True
    ):
        np.testing.assert_array_equal(left, right)


@given(program=programs())
@settings(max_examples=15, deadline=None)
def test_a_set_moves_its_members_together(program: list[Step]) -> None:
    members: list[Any] = [KVCache(), RotatingKVCache(WINDOW), CacheSet([KVCache(), KVCache()])]

    def append_nested(caches: Any, ids: list[int]) -> None:
        append_to_all([caches[0], caches[1], *caches[2]], ids)

    history = History(CacheSet(members), append_nested).run(program)
    assert {c.offset for c in members} == {len(history.committed)}


@pytest.mark.parametrize(
    "sizes", [[1] * 25, [5] * 6, [3, 1, 1, 9, 1, 2, 20, 1, 1, 1], [8, 1], [7, 2]]
)
def test_rotating_attends_to_what_the_stock_ring_attends_to(sizes: list[int]) -> None:
    ours, stock = RotatingKVCache(WINDOW), mlx_caches.RotatingKVCache(WINDOW)
    next_id = 0
    for size in sizes:
        ids = list(range(next_id, next_id + size))
        next_id += size
        query = rows(ids, salt=2)
        outputs = []
        for cache in (ours, stock):
            mask = cache.make_mask(size, window_size=WINDOW)
            keys, values = append(cache, ids)
            outputs.append(
                scaled_dot_product_attention(query, keys, values, cache, DIM**-0.5, mask)
            )
        np.testing.assert_allclose(np.array(outputs[0]), np.array(outputs[1]), atol=1e-6)
        ours.commit(size)


@pytest.mark.parametrize("size", [1, 4])
def test_rotating_masks_a_layer_with_a_smaller_window(size: int) -> None:
    small = 3
    cache = RotatingKVCache(WINDOW)
    for start in range(0, 20, size):
        ids = list(range(start, start + size))
        mask = cache.make_mask(size, window_size=small)
        keys, values = append(cache, ids)
        ours = scaled_dot_product_attention(rows(ids, salt=2), keys, values, cache, 0.2, mask)
        everything = list(range(start + size))
        t, s = np.array(ids)[:, None], np.array(everything)[None]
        expected = scaled_dot_product_attention(
            rows(ids, salt=2),
            rows(everything),
            rows(everything, salt=1),
            None,
            0.2,
            mx.array((s <= t) & (s > t - small)),
        )
        np.testing.assert_allclose(np.array(ours), np.array(expected), atol=1e-6)
        cache.commit(size)


def test_rotating_holds_a_bounded_number_of_rows() -> None:
    cache = RotatingKVCache(WINDOW)
    for i in range(2000):
        append(cache, [i])
        cache.commit(1)
    assert cache.nbytes <= 2 * 4 * HEADS * DIM * 1024
    cache.check()


def test_rotating_rolls_back_more_rows_than_the_window_across_a_move() -> None:
    cache = RotatingKVCache(WINDOW)
    append(cache, list(range(20)))
    cache.commit(20)
    for start in range(100, 900, 40):
        append(cache, list(range(start, start + 40)))
    cache.commit(1)
    keys, _ = append(cache, [7])
    expected = rows([*range(14, 20), 100, 7])
    np.testing.assert_array_equal(np.array(keys), np.array(expected))


def test_growth_copies_rows_a_few_times_only() -> None:
    cache = KVCache()
    buffers = set()
    for start in range(0, 4096, 64):
        append(cache, list(range(start, start + 64)))
        buffers.add(cache.nbytes)
    assert len(buffers) <= 9


def test_snapshot_survives_everything_done_to_the_cache() -> None:
    for make, append_rows in MAKERS.values():
        cache = make()
        append_rows(cache, [1, 2, 3])
        cache.commit(3)
        early = cache.snapshot()
        append_rows(cache, [4, 5, 6, 7])
        cache.commit(4)
        late = cache.snapshot()
        for snapshot, ids in (
            (early, [1, 2, 3]),
            (late, [1, 2, 3, 4, 5, 6, 7]),
            (early, [1, 2, 3]),
        ):
            cache.restore(snapshot)
            fresh = make()
            append_rows(fresh, ids)
            fresh.commit(len(ids))
            for left, right in zip(
                flat(append_rows(cache, [90, 91])), flat(append_rows(fresh, [90, 91])), strict=True
            ):
                np.testing.assert_array_equal(left, right)


def test_a_commit_that_one_member_refuses_changes_none() -> None:
    caches = CacheSet([KVCache(), KVCache()])
    append(caches[0], [1, 2])
    append(caches[1], [1])
    with pytest.raises(InternalError, match="commit of 2 rows, but 1"):
        caches.commit(2)
    assert caches[0].committed == 0
    with pytest.raises(InternalError, match="disagree"):
        caches.check()


def test_misuse_is_refused() -> None:
    cache = KVCache()
    append(cache, [1, 2])
    with pytest.raises(InternalError, match="snapshot while 2 rows"):
        cache.snapshot()
    with pytest.raises(InternalError, match="commit of 3 rows"):
        cache.commit(3)
    cache.commit(2)
    with pytest.raises(InternalError, match="made by another cache"):
        RotatingKVCache(WINDOW).restore(cache.snapshot())


@pytest.mark.parametrize(("bits", "group", "key"), [(7, 64, "kv_bits"), (8, 16, "kv_group_size")])
def test_quantisation_that_mlx_lacks_is_refused(bits: int, group: int, key: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        QuantizedKVCache(bits=bits, group_size=group)
    assert caught.value.key == key


def test_a_head_dimension_that_groups_do_not_divide_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="head dimension of 32"):
        append(QuantizedKVCache(bits=8, group_size=64), [1])
