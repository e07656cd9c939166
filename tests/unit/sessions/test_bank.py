"""The bank of prefixes: what it gives up, what it says about a miss, and what it counts."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.runtime.caches.composite import CacheSet
from mtplx.runtime.caches.kv import KVCache
from mtplx.runtime.caches.recurrent import RecurrentCache
from mtplx.runtime.decode.state import DecodeState
from mtplx.runtime.sessions.bank import PrefixBank, shared_length

PLENTY = 1 << 40


def state_of(tokens: list[int], *, recurrent: bool = False) -> DecodeState:
    """A state that has read `tokens`."""
    kv = KVCache()
    kv.update_and_fetch(mx.ones((1, 1, len(tokens), 4)), mx.ones((1, 1, len(tokens), 4)))
    caches: list[KVCache | RecurrentCache] = [kv]
    if recurrent:
        layer = RecurrentCache(2)
        layer[0], layer[1] = mx.ones((1, 4)), mx.ones((1, 4))
        layer.advance(len(tokens))
        caches.append(layer)
    made = DecodeState(CacheSet(caches), None, list(tokens))
    made.trunk_caches.commit(len(tokens))
    return made


def bank_of(
    *conversations: list[int], max_bytes: int = PLENTY, recurrent: bool = False
) -> PrefixBank:
    bank = PrefixBank(max_bytes)
    for tokens in conversations:
        bank.put("", state_of(tokens, recurrent=recurrent), (), len(tokens))
    return bank


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), max_size=30))
def test_the_shared_length_is_that_of_a_plain_loop(left: list[int], right: list[int]) -> None:
    expected = 0
    while expected < min(len(left), len(right)) and left[expected] == right[expected]:
        expected += 1
    assert shared_length(np.array(left, np.int32), np.array(right, np.int32)) == expected


def test_the_longest_prefix_wins() -> None:
    bank = bank_of([1, 2, 3, 9, 9], [1, 2, 3, 4, 5, 8], [7, 7])
    taken = bank.take("", [1, 2, 3, 4, 5, 6])
    assert taken.state is not None
    assert taken.state.tokens == [1, 2, 3, 4, 5]


def test_a_prompt_that_is_known_whole_still_has_a_token_to_read() -> None:
    taken = bank_of([1, 2, 3]).take("", [1, 2, 3])
    assert taken.state is not None
    assert taken.state.trunk_caches.committed == 2


def test_what_was_taken_is_gone_until_it_is_put_back() -> None:
    bank = bank_of([1, 2, 3, 4])
    assert bank.take("", [1, 2, 3, 4, 5]).state is not None
    assert len(bank) == 0
    assert bank.nbytes == 0


def test_a_branch_far_from_the_end_is_a_copy() -> None:
    bank = bank_of(list(range(20)))
    taken = bank.take("", [0, 1, 2, 3, 99, 98])
    assert taken.state is not None
    assert taken.state.tokens == [0, 1, 2, 3]
    assert len(bank) == 1
    whole = bank.take("", list(range(21)))
    assert whole.state is not None
    assert len(whole.state.tokens) == 20


def test_a_longer_conversation_takes_the_place_of_its_beginning() -> None:
    bank = bank_of([1, 2, 3], [1, 2, 3, 4, 5], [6, 7])
    assert sorted(len(entry.ids) for entry in bank._entries) == [2, 5]


def test_a_beginning_that_cannot_be_cut_to_stays() -> None:
    bank = bank_of([1, 2, 3], [1, 2, 3, 4, 5], recurrent=True)
    assert len(bank) == 2
    taken = bank.take("", [1, 2, 3, 9])
    assert taken.state is not None
    assert taken.state.tokens == [1, 2, 3]


def test_marks_serve_what_cannot_be_cut() -> None:
    early = state_of([1, 2], recurrent=True)
    mark = early.mark()
    bank = PrefixBank(PLENTY)
    more = state_of([1, 2, 3, 4], recurrent=True)
    bank.put("", more, (mark,), 4)
    taken = bank.take("", [1, 2, 3, 9, 9])
    assert taken.state is not None
    assert taken.state.tokens == [1, 2]
    assert [m.size for m in taken.marks] == [2]


def test_few_marks_are_kept_the_first_among_them() -> None:
    bank = PrefixBank(PLENTY)
    marks = [state_of([5] * size, recurrent=True).mark() for size in range(1, 12)]
    bank.put("", state_of([5] * 20, recurrent=True), marks, 20)
    assert [mark.size for mark in bank._entries[0].marks] == [1, 7, 8, 9, 10, 11]


def test_the_least_recently_used_goes_first() -> None:
    one = state_of([1] * 8).nbytes
    bank = bank_of([1] * 8, [2] * 8, max_bytes=2 * one)
    taken = bank.take("", [1] * 8 + [0])
    assert taken.state is not None
    bank.put("", taken.state, taken.marks, 8)
    bank.put("", state_of([3] * 8), (), 8)
    assert bank.take("", [2] * 8 + [0]).miss == "evicted"
    assert bank.take("", [1] * 8 + [0]).state is not None
    assert bank.evictions == 1
    assert bank.nbytes <= bank.max_bytes


def test_shedding_frees_what_was_asked_for_and_no_more() -> None:
    bank = bank_of([1] * 8, [2] * 8, [3] * 8)
    one = state_of([1] * 8).nbytes
    assert bank.shed(0) == 0
    assert len(bank) == 3
    assert bank.shed(one + 1) == 2 * one
    assert [list(entry.ids[:1]) for entry in bank._entries] == [[3]]


def test_every_miss_has_its_reason() -> None:
    assert PrefixBank(0).take("", [1, 2]).miss == "off"
    bank = bank_of([1, 2, 3, 4, 5, 6], recurrent=True)
    assert bank.take("other", [1, 2, 3]).miss == "new_session"
    assert bank.take("", [1, 8, 8, 8]).miss == "prefix_divergence"
    assert bank.take("", [1, 2, 3, 4, 9]).miss == "no_snapshot_coverage"
    small = bank_of([1] * 50, max_bytes=10)
    assert len(small) == 0
    assert small.take("", [1] * 51).miss == "oversized"
    misses = bank.to_json()["misses"]
    assert misses["prefix_divergence"] == misses["no_snapshot_coverage"] == 1


def test_clearing_forgets_everything() -> None:
    bank = bank_of([1, 2, 3])
    bank.clear()
    assert bank.take("", [1, 2, 3, 4]).miss == "new_session"


@pytest.mark.parametrize("size", [0, 1])
def test_nothing_to_reuse_in_an_empty_state_or_a_single_token(size: int) -> None:
    bank = PrefixBank(PLENTY)
    if size:
        bank.put("", state_of([1]), (), 1)
        assert bank.take("", [1]).miss is not None
    else:
        bank.put("", DecodeState(CacheSet([KVCache()]), None), (), 0)
        assert len(bank) == 0
