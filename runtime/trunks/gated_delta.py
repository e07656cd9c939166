"""A gated-delta layer that can keep part of the rows it was given, built from a loaded mlx-lm layer."""

from __future__ import annotations

import copy
from functools import partial
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import qwen3_5, qwen3_next
from mlx_lm.models.gated_delta import gated_delta_update, normalize_qk

from mtplx.contracts.errors import UnsupportedModelError
from mtplx.kernels import gated_delta
from mtplx.kernels.few_rows import few_rows
from mtplx.runtime.caches.recurrent import RecurrentCache, Tape

# Up to here a forward is one block in closed form, compiled once a number of rows; beyond, chunks.
_MAX_BLOCK_ROWS = 16
_NORM_EPS = 1e-6  # what mlx-lm adds to the squared length of queries and keys


class _Inputs(NamedTuple):
    """A layer's projections of T rows."""

    mixed: mx.array  # [B, T, 2 Hk Dk + Hv Dv], queries, keys and values before the convolution
    gate: mx.array  # [B, T, Hv Dv]
    beta: mx.array  # [B, T, Hv], before the sigmoid
    decay: mx.array  # [B, T, Hv], before the softplus


class _Constants(NamedTuple):
    """What the layer computes with between its projections."""

    conv: mx.array  # [c, 2 Hk Dk + Hv Dv]
    rate: mx.array  # [Hv], -exp(A_log), float32
    dt_bias: mx.array  # [Hv]
    norm: mx.array  # [Dv]


class CapturingGatedDelta(nn.Module):
    """Stands in for an mlx-lm gated-delta layer: same parameters, same result up to rounding.

    With an armed `RecurrentCache` it records what a commit of part of the rows needs. Where mlx-lm
    has its fused Metal kernel that kernel computes, and is replayed over the kept rows at a partial
    commit. Elsewhere mlx-lm loops over the rows; here they are computed together in closed form,
    which yields the state after any row for one small product (`mtplx.kernels.gated_delta`).

    Raises:
        UnsupportedModelError: the layer is split over several machines.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        if getattr(layer, "sharding_group", None) is not None:
            raise UnsupportedModelError(
                "a gated-delta layer split over several machines can't be rolled back"
            )
        self.num_k_heads: int = layer.num_k_heads
        self.num_v_heads: int = layer.num_v_heads
        self.head_k_dim: int = layer.head_k_dim
        self.head_v_dim: int = layer.head_v_dim
        self.key_dim: int = layer.key_dim
        self.value_dim: int = layer.value_dim
        self.conv_dim: int = layer.conv_dim
        self.num_kept: int = layer.conv_kernel_size - 1
        self.norm_eps: float = layer.layer_norm_epsilon
        self.conv1d = layer.conv1d
        self.norm = layer.norm
        self.A_log: mx.array = layer.A_log
        self.dt_bias: mx.array = layer.dt_bias
        self.in_proj = _projections(layer)
        self.out_proj = layer.out_proj
        self.uses_metal_kernel = (
            mx.metal.is_available() and mx.default_device() == mx.gpu and self.head_k_dim % 32 == 0
        )
        self._constants = _Constants(
            mx.contiguous(layer.conv1d.weight[:, :, 0].T),
            -mx.exp(layer.A_log.astype(mx.float32)),
            layer.dt_bias,
            layer.norm.weight,
        )
        mx.eval(self._constants)

    def __call__(
        self, x: mx.array, mask: mx.array | None = None, cache: RecurrentCache | None = None
    ) -> mx.array:
        """[B, T, H] to [B, T, H], appended to `cache`; rows are never padding, so `mask` is None."""
        assert mask is None
        inputs = self._project(x)
        kept, state = self._before(x, cache)
        forward = self._with_metal_kernel if self.uses_metal_kernel else self._with_plain_ops
        y, tape, state = forward(inputs, kept, state)
        if cache is not None:
            cache.record(tape, state)
        return _linear(self.out_proj, y)

    def _project(self, x: mx.array) -> _Inputs:
        joined = [_linear(layer, x) for layer in self.in_proj]
        row = joined[0] if len(joined) == 1 else mx.concatenate(joined, axis=-1)
        cuts = [self.conv_dim, self.conv_dim + self.value_dim]
        return _Inputs(*mx.split(row, [*cuts, cuts[-1] + self.num_v_heads], axis=-1))

    def _before(self, x: mx.array, cache: RecurrentCache | None) -> tuple[mx.array, mx.array]:
        """Convolution inputs kept [B, c - 1, C] and state [B, Hv, Dv, Dk] from before these rows."""
        kept = cache[0] if cache is not None else None
        state = cache[1] if cache is not None else None
        batch = x.shape[0]
        if kept is None:
            kept = mx.zeros((batch, self.num_kept, self.conv_dim), x.dtype)
        if state is None:
            shape = (batch, self.num_v_heads, self.head_v_dim, self.head_k_dim)
            state = mx.zeros(shape, mx.float32)
        return kept, state

    def _with_plain_ops(
        self, inputs: _Inputs, kept: mx.array, state: mx.array
    ) -> tuple[mx.array, Tape, mx.array]:
        num_rows = inputs.mixed.shape[1]
        if num_rows == 1:
            y, window, after = _one_row(*inputs, kept, state, *self._constants, self.norm_eps)
            return y, Tape(1, window, lambda _: after), after
        if num_rows <= _MAX_BLOCK_ROWS:
            y, window, after, *rest = _few_rows(
                *inputs, kept, state, *self._constants, self.norm_eps
            )
            return y, Tape(num_rows, window, partial(_after_block, *rest, state)), after
        window, rows = _mix(*inputs[::2], inputs.decay, kept, self._constants, state)
        y, after = gated_delta.chunked(*rows, state)
        y = _gated_norm(y, inputs.gate, self._constants.norm, self.norm_eps)
        return y, Tape(num_rows, window, partial(_after_chunks, rows, state)), after

    def _with_metal_kernel(
        self, inputs: _Inputs, kept: mx.array, state: mx.array
    ) -> tuple[mx.array, Tape, mx.array]:
        batch, num_rows, _ = inputs.mixed.shape
        window = mx.concatenate([kept, inputs.mixed], axis=1)
        mixed = nn.silu(self.conv1d(window))
        q, k, v = mx.split(mixed, [self.key_dim, 2 * self.key_dim], axis=-1)
        shape = (batch, num_rows, self.num_k_heads, self.head_k_dim)
        q, k = normalize_qk(
            q.reshape(shape), k.reshape(shape), inv_scale=self.head_k_dim**-0.5, eps=_NORM_EPS
        )
        v = v.reshape(batch, num_rows, self.num_v_heads, self.head_v_dim)
        rows = (q, k, v, inputs.decay, inputs.beta)

        def update(num_kept_rows: int) -> tuple[mx.array, mx.array]:
            parts = (r[:, :num_kept_rows] for r in rows)
            y, after = gated_delta_update(*parts, self.A_log, self.dt_bias, state, None)
            return y, after

        y, after = update(num_rows)
        gate = inputs.gate.reshape(v.shape)
        y = self.norm(y, gate).reshape(batch, num_rows, self.value_dim)
        return y, Tape(num_rows, window, lambda n: update(n)[1]), after


def install_gated_delta(model: nn.Module) -> int:
    """Put a `CapturingGatedDelta` in the place of every gated-delta layer of this model; how many there were."""
    num_installed = 0
    for layer in model.layers:
        stock = getattr(layer, "linear_attn", None)
        if isinstance(stock, qwen3_next.Qwen3NextGatedDeltaNet | qwen3_5.GatedDeltaNet):
            layer.linear_attn = CapturingGatedDelta(stock)
            num_installed += 1
    return num_installed


def _projections(layer: nn.Module) -> list[nn.Module]:
    """Input projections whose outputs, one after the other, are [mixed | gate | beta | decay]."""
    if isinstance(layer, qwen3_next.Qwen3NextGatedDeltaNet):
        order = _grouped_order(layer)
        layers = [
            _reordered(layer.in_proj_qkvz, order[0]),
            _reordered(layer.in_proj_ba, order[1]),
        ]
    else:
        layers = [layer.in_proj_qkv, layer.in_proj_z, layer.in_proj_b, layer.in_proj_a]
    if any(type(p) is not nn.Linear or "bias" in p for p in layers):
        return layers
    # One product instead of several: the weights are read once either way, the calls are not free.
    return [_linear_of(mx.concatenate([p.weight for p in layers]))]


def _grouped_order(layer: nn.Module) -> tuple[mx.array, mx.array]:
    """Rows of Qwen3-Next's projections, which are grouped by key head, in the order [q | k | v | z] and [b | a]."""
    num_k, ratio = layer.num_k_heads, layer.num_v_heads // layer.num_k_heads
    widths = [
        layer.head_k_dim,
        layer.head_k_dim,
        ratio * layer.head_v_dim,
        ratio * layer.head_v_dim,
    ]
    return _ungrouped(num_k, widths), _ungrouped(num_k, [ratio, ratio])


def _ungrouped(num_groups: int, widths: list[int]) -> mx.array:
    rows = mx.arange(num_groups * sum(widths)).reshape(num_groups, sum(widths))
    cuts = [sum(widths[: i + 1]) for i in range(len(widths) - 1)]
    return mx.concatenate([part.flatten() for part in mx.split(rows, cuts, axis=1)])


def _reordered(layer: nn.Module, order: mx.array) -> nn.Module:
    """A copy of a linear layer, quantised or not, with its output features in another order."""
    if type(layer) is nn.Linear:
        return _linear_of(layer.weight[order])
    reordered = copy.copy(layer)
    for name, value in layer.parameters().items():
        reordered[name] = value[order]
    return reordered


def _linear_of(weight: mx.array) -> nn.Linear:
    layer = nn.Linear(1, 1, bias=False)
    layer.weight = weight
    mx.eval(weight)
    return layer


def _linear(layer: nn.Module, x: mx.array) -> mx.array:
    if type(layer) is nn.Linear and "bias" not in layer and mx.default_device() == mx.cpu:
        return few_rows(x, layer.weight)
    return layer(x)


def _mix(
    mixed: mx.array,
    beta: mx.array,
    decay: mx.array,
    kept: mx.array,
    constants: _Constants,
    state: mx.array,
) -> tuple[mx.array, tuple[mx.array, ...]]:
    """The convolution input, and the rows (q, k, v, log decay, beta) for the recurrence, in float32."""
    batch, num_rows, width = mixed.shape
    _, num_v, dim_v, dim_k = state.shape
    window = mx.concatenate([kept, mixed], axis=1)
    size, total = constants.conv.shape[0], window.shape[1]
    strided = mx.as_strided(
        window, (batch, num_rows, size, width), (total * width, width, width, 1)
    )
    mixed = (strided * constants.conv).sum(axis=2)
    mixed = (mixed * mx.sigmoid(mixed)).astype(mx.float32)
    num_k = (width - num_v * dim_v) // (2 * dim_k)
    pairs, v = mx.split(mixed, [2 * num_k * dim_k], axis=-1)
    pairs = pairs.reshape(batch, num_rows, 2, num_k, dim_k)
    pairs = pairs * mx.rsqrt(mx.square(pairs).sum(axis=-1, keepdims=True) + _NORM_EPS)
    log_decay = mx.logaddexp(decay + constants.dt_bias, 0.0) * constants.rate
    return window, (
        pairs[:, :, 0] * dim_k**-0.5,
        pairs[:, :, 1],
        v.reshape(batch, num_rows, num_v, dim_v),
        log_decay,
        mx.sigmoid(beta).astype(mx.float32),
    )


def _gated_norm(y: mx.array, gate: mx.array, weight: mx.array, eps: float) -> mx.array:
    """RMS norm of y [B, T, Hv, Dv] times silu of the gate: [B, T, Hv Dv], in the gate's type."""
    normed = mx.fast.rms_norm(y, weight.astype(mx.float32), eps).reshape(gate.shape)
    gate32 = gate.astype(mx.float32)
    return (normed * (gate32 * mx.sigmoid(gate32))).astype(gate.dtype)


@mx.compile
def _one_row(
    mixed: mx.array,
    gate: mx.array,
    beta: mx.array,
    decay: mx.array,
    kept: mx.array,
    state: mx.array,
    conv: mx.array,
    rate: mx.array,
    dt_bias: mx.array,
    norm: mx.array,
    eps: float,
) -> tuple[mx.array, mx.array, mx.array]:
    window, rows = _mix(mixed, beta, decay, kept, _Constants(conv, rate, dt_bias, norm), state)
    y, after = gated_delta.step(*rows, state)
    return _gated_norm(y, gate, norm, eps), window, after


@mx.compile
def _few_rows(
    mixed: mx.array,
    gate: mx.array,
    beta: mx.array,
    decay: mx.array,
    kept: mx.array,
    state: mx.array,
    conv: mx.array,
    rate: mx.array,
    dt_bias: mx.array,
    norm: mx.array,
    eps: float,
) -> tuple[mx.array, ...]:
    window, rows = _mix(mixed, beta, decay, kept, _Constants(conv, rate, dt_bias, norm), state)
    block = gated_delta.block(*rows, state)
    y = _gated_norm(block.y, gate, norm, eps)
    return y, window, block.state, block.innovations, block.keys, block.log_decays


_compiled_state_after = mx.compile(gated_delta.state_after)


def _after_block(
    innovations: mx.array, keys: mx.array, log_decays: mx.array, state: mx.array, num_rows: int
) -> mx.array:
    return _compiled_state_after(
        innovations[..., :num_rows, :], keys[..., :num_rows, :], log_decays[..., :num_rows], state
    )


def _after_chunks(rows: tuple[mx.array, ...], state: mx.array, num_rows: int) -> mx.array:
    return gated_delta.chunked(*(r[:, :num_rows] for r in rows), state)[1]
