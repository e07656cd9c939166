"""Measuring with a real model: what is measured is what decoding does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mtplx.contracts.errors import HeadMissingError, PromptTooLongError
from mtplx.runtime.bench.own.answerer import Answerer, decode, find_room, read_prompt, watch_memory
from mtplx.runtime.bench.own.round_probe import RoundProbe
from mtplx.runtime.bench.tasks import (
    CostsTask,
    DecodeTask,
    MemoryTask,
    PrefillTask,
    RoomTask,
)
from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from tests.conftest import TinyFactory

PROMPT = [(7 * position) % 60 for position in range(100)]


@pytest.fixture(scope="module")
def model(shared_tiny: TinyFactory) -> Model:
    """Two layers of attention with one KV head 32 wide; keys and values are float32 on the CPU."""
    return load(shared_tiny("mimo", vocab=64, hidden=64))


@pytest.fixture(scope="module")
def hybrid(shared_tiny: TinyFactory) -> Model:
    return load(shared_tiny("qwen3_5", vocab=64))


@pytest.fixture(scope="module")
def headless(shared_tiny: TinyFactory) -> Model:
    return load(shared_tiny("llama", vocab=64))


def row_bytes(model: Model) -> int:
    """Keys and values of one token in one attention layer."""
    args: Any = model.trunk.model.args
    width = args.hidden_size // args.num_attention_heads
    item = 4 if "float32" in model.device["dtypes"] else 2
    return 2 * int(args.num_key_value_heads) * int(width) * item


def num_layers(model: Model) -> int:
    return len(model.trunk.model.layers)


def test_decoding_gives_the_models_own_text_at_every_depth(model: Model) -> None:
    wanted = model.generate(
        PROMPT, max_tokens=20, depth=0, temperature=0.0, ignore_end_tokens=True
    ).token_ids
    for depth in (0, 2, None):
        found = decode(model, DecodeTask(PROMPT, 20, depth))
        assert tuple(found.tokens) == wanted
        assert found.decode_tok_s > 0
        assert found.peak_bytes is not None
        assert found.peak_bytes > 0
    assert found.rounds > 0
    plain = decode(model, DecodeTask(PROMPT, 20, 0))
    assert (plain.rounds, plain.drafted_by_depth) == (19, [])


def test_a_seed_gives_one_text_under_coupled_at_every_depth(model: Model) -> None:
    texts = [
        decode(model, DecodeTask(PROMPT, 20, depth, temperature=1.0, seed=9)).tokens
        for depth in (0, 1, 3)
    ]
    assert texts[0] == texts[1] == texts[2]
    assert texts[0] != decode(model, DecodeTask(PROMPT, 20, 0, temperature=1.0, seed=10)).tokens


def test_a_penalty_of_the_model_plays_no_part_either(model: Model) -> None:
    strict = dataclasses.replace(model, sampler_defaults={"repetition_penalty": 50.0})
    task = DecodeTask(PROMPT, 30, 0)
    assert decode(strict, task).tokens == decode(model, task).tokens


def test_the_sampling_defaults_of_the_model_play_no_part(model: Model) -> None:
    assert model.sampler_defaults["top_k"] == 20
    free = decode(model, DecodeTask(PROMPT, 40, 0, temperature=1.0, seed=1)).tokens
    narrow = decode(model, DecodeTask(PROMPT, 40, 0, temperature=1.0, top_k=2, seed=1)).tokens
    assert free != narrow


def test_reading_takes_time_and_the_head_reads_the_last_chunk_before_it_drafts(
    model: Model,
) -> None:
    plain = read_prompt(model, PrefillTask(PROMPT, 32))
    primed = read_prompt(model, PrefillTask(PROMPT, 32, use_head=True))
    assert plain.head_rest_s is None
    assert primed.head_rest_s is not None
    assert min(plain.ttft_s, primed.ttft_s, primed.head_rest_s) > 0


def test_a_token_takes_the_bytes_of_its_keys_and_values(model: Model) -> None:
    use = watch_memory(model, MemoryTask(PROMPT, 8, 32, depth=2))
    layers = num_layers(model)
    assert use.trunk_bytes_per_token == layers * row_bytes(model)
    assert use.head_bytes_per_token == row_bytes(model)
    assert use.trunk_cache_bytes >= 107 * layers * row_bytes(model)
    assert use.head_cache_bytes is not None
    assert min(use.prefill_peak_bytes, use.decode_peak_bytes) > use.trunk_cache_bytes


def test_plain_decoding_has_no_cache_of_the_head(model: Model) -> None:
    use = watch_memory(model, MemoryTask(PROMPT, 8, 32))
    assert (use.head_cache_bytes, use.head_bytes_per_token) == (None, None)


def test_recurrent_layers_take_nothing_for_a_token(hybrid: Model) -> None:
    use = watch_memory(hybrid, MemoryTask(PROMPT, 8, 32, depth=1))
    args = hybrid.trunk.args
    row = 2 * int(args.num_key_value_heads) * int(args.head_dim) * 4
    assert use.trunk_bytes_per_token == row  # one of its two layers has attention
    assert use.head_bytes_per_token == row


def test_a_quantised_cache_takes_a_fraction(shared_tiny: TinyFactory, model: Model) -> None:
    eight = load(shared_tiny("mimo", vocab=64, hidden=64), kv_bits=8)
    found = watch_memory(eight, MemoryTask(PROMPT, 8, 32)).trunk_bytes_per_token
    # A byte each, and a scale and a bias (float32 here) for every 32 of them.
    assert found == num_layers(model) * row_bytes(model) / 4 * (1 + 8 / 32)


def test_room_counts_what_a_token_adds_to_all_caches(model: Model, headless: Model) -> None:
    room = find_room(model)
    assert room.bytes_per_token == (num_layers(model) + 1) * row_bytes(model)
    assert room.free_bytes > 0
    assert find_room(headless).bytes_per_token == num_layers(headless) * row_bytes(headless)


@pytest.mark.parametrize("name", ["model", "hybrid"])
def test_every_part_of_a_round_is_timed_and_the_sequences_stay_sound(
    name: str, request: pytest.FixtureRequest
) -> None:
    probed: Model = request.getfixturevalue(name)
    task = CostsTask(PROMPT, 5, 3, 32)
    probe = RoundProbe(probed, task)
    times = probe.measure(5, 3)
    assert (len(times.verify), len(times.drafts), len(times.rounds)) == (5, 3, 4)
    assert min(*times.verify, *times.drafts, *times.rounds) > 0
    for running in (probe._plain, probe._drafting()):
        running.state.check()
        wanted = probed.generate(
            PROMPT, max_tokens=10, depth=0, temperature=0.0, ignore_end_tokens=True
        ).token_ids
        grown = running.state.tokens[len(PROMPT) :]
        assert tuple(grown[:10]) == wanted[: len(grown)]


def test_a_chain_of_drafts_leaves_no_row_behind(model: Model) -> None:
    probe = RoundProbe(model, CostsTask(PROMPT, 2, 1, 32))
    caches = probe._drafting().state.head_caches
    assert caches is not None
    rows = caches.offset
    probe._drafts(3)
    assert caches.offset == caches.committed == rows


def test_a_probe_is_kept_for_the_same_task_only(model: Model) -> None:
    answerer = Answerer(model)
    task = CostsTask(PROMPT, 2, 1, 32)
    answerer.answer(task)
    kept = answerer._probe
    answerer.answer(CostsTask(list(PROMPT), 2, 1, 32))
    assert answerer._probe is kept
    answerer.answer(CostsTask(PROMPT[:50], 2, 1, 32))
    assert answerer._probe is not kept


def test_drafts_of_a_model_without_head_are_refused(headless: Model) -> None:
    answerer = Answerer(headless)
    assert answerer.about["has_head"] is False
    assert answerer.about["weights"]["head"] is None
    with pytest.raises(HeadMissingError):
        answerer.answer(CostsTask(PROMPT, 2, 1, 32))
    answerer.answer(CostsTask(PROMPT, 2, 0, 32))
    answerer.answer(RoomTask())


def test_a_prompt_longer_than_the_context_is_refused(model: Model) -> None:
    with pytest.raises(PromptTooLongError):
        read_prompt(model, PrefillTask([1] * 5000, 512))


def test_weights_are_counted_as_computed_with(model: Model) -> None:
    about = Answerer(model).about
    index = model.inspection.index
    assert index is not None
    stored = sum(tensor.nbytes for tensor in index.tensors.values())
    factor = 2 if "float32" in model.device["dtypes"] else 1
    assert about["weights"]["trunk"] + about["weights"]["head"] == factor * stored
