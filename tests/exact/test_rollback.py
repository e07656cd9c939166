"""After any history of drafts kept and dropped, a model goes on as after a fresh prefill.

Float32 and random weights. Rows computed together and one by one take different summation orders,
so logits (of size about 1) are compared with a tolerance of 2e-4; a single wrong row in a cache
moves them by more than 1e-2, which `test_a_lost_row_is_far_outside_the_tolerance` holds.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from mlx.utils import tree_map
from mlx_lm.models import deepseek_v3, llama, mimo, qwen3_5, qwen3_next

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.runtime.caches.composite import CacheSet, make_caches
from mtplx.runtime.caches.quantized import QuantizedKVCache
from mtplx.runtime.caches.recurrent import RecurrentCache
from mtplx.runtime.trunks.gated_delta import install_gated_delta
from tests.unit.caches.programs import History, Step, programs

TOLERANCE = 2e-4
# A key or value that rounding moves across the edge of an 8-bit code is one code off: a 255th of its group's range.
CODE_TOLERANCE = 0.01
VOCAB = 64
HYBRIDS = ("qwen3_next", "qwen3_5")

COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "max_position_embeddings": 512,
    "head_dim": 32,
}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "partial_rotary_factor": 0.5,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "shared_expert_intermediate_size": 32,
    "moe_intermediate_size": 32,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}
LATENT = {
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "n_routed_experts": None,
    "first_k_dense_replace": 2,
    "num_key_value_heads": 4,
}
ARGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "qwen3_next": (qwen3_next, {**COMMON, **LINEAR, **EXPERTS}),
    "qwen3_5": (qwen3_5, {**COMMON, **LINEAR, "tie_word_embeddings": True}),
    "deepseek_v3": (deepseek_v3, {**COMMON, **LATENT}),
    "llama": (
        llama,
        {**COMMON, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8},
    ),
    "mimo": (mimo, {**COMMON, "num_nextn_predict_layers": 0, "tie_word_embeddings": False}),
}
NAMES = [*ARGS, "llama-quantized"]


@cache
def model(name: str) -> nn.Module:
    """A model of two layers with random weights large enough for every part to matter."""
    module, config = ARGS[name]
    made: nn.Module = module.Model(module.ModelArgs.from_dict({"model_type": name, **config}))
    keys = iter(mx.random.split(mx.random.key(7), 256))

    def weight(array: mx.array) -> mx.array:
        if array.ndim < 2:
            noise: mx.array = 0.1 * mx.random.normal(array.shape, key=next(keys))
            return array + noise
        drawn: mx.array = mx.random.normal(array.shape, key=next(keys)) * array.shape[-1] ** -0.5
        return drawn

    made.update(tree_map(weight, made.parameters()))
    install_gated_delta(made)
    mx.eval(made.parameters())
    return made


def empty_caches(name: str) -> CacheSet:
    if name.endswith("-quantized"):
        return make_caches(model(name.removesuffix("-quantized")), kv_bits=8, kv_group_size=32)
    return make_caches(model(name))


def run(name: str, caches: CacheSet, ids: list[int]) -> np.ndarray[Any, Any]:
    """Logits [T, V] of `ids`, which are appended to the caches."""
    tokens = mx.array([[i % VOCAB for i in ids]])
    return np.array(model(name.removesuffix("-quantized"))(tokens, cache=caches)[0])


def prefilled(name: str, ids: list[int]) -> CacheSet:
    caches = empty_caches(name)
    if ids:
        run(name, caches, ids)
        caches.commit(len(ids))
    return caches


def assert_same_future(name: str, caches: CacheSet, committed: list[int], count: int = 3) -> None:
    """The next `count` tokens get the logits of a fresh run, and recurrent state is the same."""
    fresh = prefilled(name, committed)
    assert caches.offset == fresh.offset == len(committed)
    for ours, theirs in zip(caches, fresh, strict=True):
        if isinstance(ours, RecurrentCache) and committed:
            for left, right in zip(ours.arrays(), theirs.arrays(), strict=True):
                assert left.dtype == right.dtype == mx.float32
                np.testing.assert_allclose(np.array(left), np.array(right), atol=1e-5, rtol=1e-5)
    for token in range(5, 5 + count):
        found, expected = run(name, caches, [token]), run(name, fresh, [token])
        bound = CODE_TOLERANCE if name.endswith("-quantized") else TOLERANCE
        np.testing.assert_allclose(found, expected, atol=bound)
        caches.commit(1)
        fresh.commit(1)
    caches.check()


@pytest.mark.parametrize("name", NAMES)
@given(program=programs(max_steps=12))
@settings(max_examples=20)
def test_any_history_equals_a_fresh_run(name: str, program: list[Step]) -> None:
    def append(caches: CacheSet, ids: list[int]) -> None:
        run(name, caches, ids)

    history = History(empty_caches(name), append).run(program)
    assert_same_future(name, history.caches, history.committed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("accepted", range(5))
def test_a_round_of_four_drafts_can_keep_any_number(name: str, accepted: int) -> None:
    prompt, drafts = list(range(11)), [20, 21, 22, 23, 24]
    caches = prefilled(name, prompt)
    caches.arm()
    run(name, caches, drafts)
    caches.commit(1 + accepted)
    assert_same_future(name, caches, prompt + drafts[: 1 + accepted], count=20)


@pytest.mark.parametrize("name", NAMES)
def test_many_rounds_stay_on_the_plain_path(name: str) -> None:
    caches, committed = prefilled(name, [1, 2, 3]), [1, 2, 3]
    for round_number in range(12):
        drafts = [(7 * round_number + i) % VOCAB for i in range(1 + round_number % 4)]
        kept = round_number % (len(drafts) + 1)
        caches.arm()
        run(name, caches, drafts)
        caches.commit(kept)
        committed += drafts[:kept]
    assert_same_future(name, caches, committed)


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_row_is_far_outside_the_tolerance(name: str) -> None:
    whole, lacking = prefilled(name, [1, 2, 3, 4, 5]), prefilled(name, [1, 2, 4, 5])
    assert np.abs(run(name, whole, [6]) - run(name, lacking, [6])).max() > 1e-2


@pytest.mark.parametrize("name", NAMES)
def test_interleaved_sessions_do_not_influence_one_another(name: str) -> None:
    ids = {"a": list(range(10, 20)), "b": list(range(40, 50))}
    alone: dict[str, list[Any]] = {key: [] for key in ids}
    for key, tokens in ids.items():
        caches = empty_caches(name)
        for token in tokens:
            alone[key].append(run(name, caches, [token]))
            caches.commit(1)
    together = {key: empty_caches(name) for key in ids}
    for step in range(10):
        for key, caches in together.items():
            caches.arm()
            run(name, caches, [ids[key][step], 63])
            caches.rollback()
            np.testing.assert_array_equal(run(name, caches, [ids[key][step]]), alone[key][step])
            caches.commit(1)


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_prefill_keeps_no_tape(name: str) -> None:
    caches = empty_caches(name)
    run(name, caches, list(range(20)))
    state_bytes = sum(a.nbytes for a in caches[0].arrays())
    assert caches[0].nbytes == state_bytes
    caches.commit(20)
    mx.eval(caches.state)
    before = mx.get_active_memory()
    run(name, caches, list(range(20)))
    caches.commit(20)
    mx.eval(caches.state)
    assert mx.get_active_memory() <= before


def test_quantised_layers_are_those_with_full_attention() -> None:
    kinds = [isinstance(c, QuantizedKVCache) for c in empty_caches("llama-quantized")]
    assert kinds == [False, True]


def test_a_latent_cache_is_not_quantised() -> None:
    with pytest.raises(UnsupportedModelError, match="latent attention"):
        make_caches(model("deepseek_v3"), kv_bits=8)


class OddCache:
    """A kind of cache that mlx-lm might add."""


def test_an_unknown_kind_of_cache_is_named() -> None:
    class Odd(nn.Module):
        layers = ()

        def make_cache(self) -> list[OddCache]:
            return [OddCache()]

    with pytest.raises(UnsupportedModelError, match="OddCache"):
        make_caches(Odd())  # type: ignore[no-untyped-call]  # as nn.Module is made
