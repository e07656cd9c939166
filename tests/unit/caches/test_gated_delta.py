"""The gated delta rule against a float64 loop, and its layer against mlx-lm's."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models import cache as mlx_caches
from mlx_lm.models import qwen3_5, qwen3_next
from mlx_lm.models.gated_delta import gated_delta_ops

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.kernels import gated_delta
from mtplx.kernels.few_rows import few_rows
from mtplx.runtime.caches.recurrent import RecurrentCache
from mtplx.runtime.trunks.gated_delta import CapturingGatedDelta

NUM_K, NUM_V, DIM_K, DIM_V = 2, 6, 32, 16
HIDDEN = 48

Array = np.ndarray[Any, Any]


def inputs(num_rows: int, *, batch: int = 1, hard: bool = False, seed: int = 0) -> list[Array]:
    """q, k, v, log decay, beta, state. `hard`: nearly equal keys, full rate, no decay."""
    rng = np.random.default_rng(seed)
    q, k = (rng.standard_normal((batch, num_rows, NUM_K, DIM_K)) for _ in range(2))
    if hard:
        k = 1.0 + 0.01 * k
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    v = rng.standard_normal((batch, num_rows, NUM_V, DIM_V))
    log_decay = -rng.exponential(0.0 if hard else 0.5, (batch, num_rows, NUM_V))
    beta = np.ones_like(log_decay) if hard else rng.uniform(0, 1, log_decay.shape)
    state = rng.standard_normal((batch, NUM_V, DIM_V, DIM_K))
    return [x.astype(np.float32) for x in (q, k, v, log_decay, beta, state)]


def oracle(arrays: list[Array]) -> tuple[Array, list[Array]]:
    """The rule in float64, row by row: y and the state after each row."""
    q, k, v, log_decay, beta, state = (x.astype(np.float64) for x in arrays)
    q, k = (np.repeat(x, NUM_V // NUM_K, axis=2) for x in (q, k))
    ys, states = [], []
    for t in range(q.shape[1]):
        state = state * np.exp(log_decay[:, t])[..., None, None]
        read = np.einsum("bhvk,bhk->bhv", state, k[:, t])
        innovation = (v[:, t] - read) * beta[:, t][..., None]
        state = state + innovation[..., None] * k[:, t][..., None, :]
        ys.append(np.einsum("bhvk,bhk->bhv", state, q[:, t]))
        states.append(state)
    return np.stack(ys, axis=1), states


def assert_close(actual: mx.array, expected: Array, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.array(actual), expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 8, 9, 16, 33, 64])
def test_every_form_equals_the_float64_loop(num_rows: int, hard: bool) -> None:
    arrays = inputs(num_rows, hard=hard)
    *rows, state = map(mx.array, arrays)
    expected, states = oracle(arrays)
    y, each_state = gated_delta.recurrence(gated_delta.Rows(*rows), state)
    assert_close(y, expected)
    for actual, wanted in zip(each_state, states, strict=True):
        assert_close(actual, wanted)
    block = gated_delta.block(gated_delta.Rows(*rows), state)
    assert_close(block.y, expected)
    for n in range(1, num_rows + 1):
        after = gated_delta.state_after(
            block.innovations[..., :n, :], block.keys[..., :n, :], block.log_decays[..., :n], state
        )
        assert_close(after, states[n - 1])
    y, last = gated_delta.chunked(gated_delta.Rows(*rows), state)
    assert_close(y, expected)
    assert_close(last, states[-1])


def test_the_plain_form_equals_the_stock_loop() -> None:
    *rows, state = map(mx.array, inputs(12, batch=2))
    q, k, v, log_decay, beta = rows
    y, states = gated_delta.recurrence(gated_delta.Rows(*rows), state)
    stock_y, stock_state = gated_delta_ops(q, k, v, mx.exp(log_decay), beta, state)
    assert_close(y, np.array(stock_y), 1e-6)
    assert_close(states[-1], np.array(stock_state), 1e-6)


def test_a_strong_decay_forgets_without_overflow() -> None:
    arrays = inputs(40)
    arrays[3] = arrays[3] * 0 - 60.0
    expected, states = oracle(arrays)
    y, last = gated_delta.chunked(gated_delta.Rows(*map(mx.array, arrays[:5])), mx.array(arrays[5]))
    assert_close(y, expected)
    assert_close(last, states[-1])


@pytest.mark.parametrize("num_rows", range(1, 8))
def test_a_product_of_few_rows_equals_the_plain_product(num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    x, weight = rng.standard_normal((1, num_rows, 40)), rng.standard_normal((24, 40))
    product = few_rows(mx.array(x.astype(np.float32)), mx.array(weight.astype(np.float32)))
    assert product.shape == (1, num_rows, 24)
    assert_close(product, x @ weight.T, 1e-5)


def held(cache: RecurrentCache, index: int) -> mx.array:
    array = cache[index]
    assert array is not None
    return array


def next_layer() -> Any:
    return qwen3_next.Qwen3NextGatedDeltaNet(
        qwen3_next.ModelArgs.from_dict(
            {
                **dict.fromkeys(qwen3_next.ModelArgs.__dataclass_fields__, 0),
                "hidden_size": HIDDEN,
                "linear_num_value_heads": NUM_V,
                "linear_num_key_heads": NUM_K,
                "linear_key_head_dim": DIM_K,
                "linear_value_head_dim": DIM_V,
                "linear_conv_kernel_dim": 4,
                "rms_norm_eps": 1e-6,
            }
        )
    )


def dense_layer() -> Any:
    return qwen3_5.GatedDeltaNet(
        qwen3_5.TextModelArgs(
            hidden_size=HIDDEN,
            linear_num_value_heads=NUM_V,
            linear_num_key_heads=NUM_K,
            linear_key_head_dim=DIM_K,
            linear_value_head_dim=DIM_V,
            linear_conv_kernel_dim=4,
            num_attention_heads=1,
        )
    )


def randomised(layer: nn.Module) -> nn.Module:
    mx.random.seed(3)
    layer.dt_bias = mx.random.normal(layer.dt_bias.shape)
    layer.norm.weight = 1 + 0.1 * mx.random.normal(layer.norm.weight.shape)
    mx.eval(layer.parameters())
    return layer


def quantized_projections(layer: nn.Module) -> nn.Module:
    for name, child in list(layer.children().items()):
        if name.startswith("in_proj"):
            weight = mx.pad(child.weight, [(0, 0), (0, 64 - HIDDEN)])
            child.weight = weight
            layer[name] = nn.QuantizedLinear.from_linear(child, group_size=64, bits=8)
    return layer


@pytest.mark.parametrize("make", [next_layer, dense_layer])
@pytest.mark.parametrize("is_metal", [False, True])
@pytest.mark.parametrize("sizes", [[1, 1, 1], [2, 1, 5], [20, 3, 8], [40, 1, 16, 17]])
def test_the_layer_equals_the_stock_layer(make: Any, is_metal: bool, sizes: list[int]) -> None:
    stock = randomised(make())
    ours = CapturingGatedDelta(stock)
    ours.uses_metal_kernel = is_metal
    stock_cache, cache = mlx_caches.ArraysCache(2), RecurrentCache()
    for seed, size in enumerate(sizes):
        x = mx.random.normal((1, size, HIDDEN), key=mx.random.key(seed))
        expected = stock(x, None, stock_cache)
        assert_close(ours(x, None, cache), np.array(expected), 1e-5)
        cache.commit(size)
        assert_close(held(cache, 0), np.array(stock_cache[0]), 1e-6)
        assert_close(held(cache, 1), np.array(stock_cache[1]), 1e-5)
        assert held(cache, 1).dtype == mx.float32
        assert_close(ours(x), np.array(stock(x)), 1e-5)


@pytest.mark.parametrize("make", [next_layer, dense_layer])
@pytest.mark.parametrize("is_metal", [False, True])
@pytest.mark.parametrize("num_rows", [1, 2, 4, 9, 21])
def test_the_layer_keeps_any_part_of_its_rows(make: Any, is_metal: bool, num_rows: int) -> None:
    ours = CapturingGatedDelta(randomised(make()))
    ours.uses_metal_kernel = is_metal
    x = mx.random.normal((1, 6 + num_rows, HIDDEN), key=mx.random.key(1))
    for kept in range(num_rows + 1):
        cache, fresh = RecurrentCache(), RecurrentCache()
        ours(x[:, :6], None, cache)
        cache.commit(6)
        cache.arm()
        ours(x[:, 6:], None, cache)
        cache.commit(kept)
        ours(x[:, : 6 + kept], None, fresh)
        assert_close(held(cache, 0), np.array(fresh[0]), 1e-6)
        assert_close(held(cache, 1), np.array(fresh[1]), 1e-5)


@pytest.mark.parametrize("make", [next_layer, dense_layer])
def test_quantised_projections_are_kept(make: Any) -> None:
    stock = quantized_projections(randomised(make()))
    ours = CapturingGatedDelta(stock)
    x = mx.pad(mx.random.normal((1, 5, HIDDEN)), [(0, 0), (0, 0), (0, 64 - HIDDEN)])
    assert_close(ours(x), np.array(stock(x)), 1e-5)


def test_half_precision_stays_in_the_model_type() -> None:
    stock = randomised(dense_layer())
    stock.set_dtype(mx.bfloat16)
    ours = CapturingGatedDelta(stock)
    x = mx.random.normal((1, 5, HIDDEN)).astype(mx.bfloat16)
    cache = RecurrentCache()
    y = ours(x, None, cache)
    assert y.dtype == mx.bfloat16
    assert held(cache, 1).dtype == mx.float32
    expected = np.array(stock(x).astype(mx.float32))
    assert_close(y.astype(mx.float32), expected, 0.05)


def test_a_split_layer_is_refused() -> None:
    layer = dense_layer()
    layer.sharding_group = object()
    with pytest.raises(UnsupportedModelError, match="several machines"):
        CapturingGatedDelta(layer)
