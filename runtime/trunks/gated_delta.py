"""A gated-delta layer that can keep part of its rows, built from a loaded mlx-lm layer."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import qwen3_5, qwen3_next
from mlx_lm.models.gated_delta import gated_delta_update, normalize_qk

from mtplx.contracts.errors import InternalError, UnsupportedModelError
from mtplx.kernels.gated_delta import Rows, block, chunked, state_after, step
from mtplx.runtime.caches.recurrent import RecurrentCache, Tape
from mtplx.runtime.trunks.gated_delta_inputs import input_projections

# Up to here a forward is one block in closed form, compiled once a number of rows; beyond, chunks.
_MAX_BLOCK_ROWS = 16
_NORM_EPS = 1e-6  # what mlx-lm adds to the squared length of queries and keys


class _Inputs(NamedTuple):
    """A layer's projections of T rows."""

    mixed: mx.array  # [B, T, C] with C = 2 Hk Dk + Hv Dv: q, k, v before the convolution
    gate: mx.array  # [B, T, Hv Dv]
    beta: mx.array  # [B, T, Hv], before the sigmoid
    decay: mx.array  # [B, T, Hv], before the softplus


class _Before(NamedTuple):
    """What the cache held before these rows."""

    window: mx.array  # [B, c - 1, C], the last convolution inputs
    state: mx.array  # [B, Hv, Dv, Dk], float32


class _Constants(NamedTuple):
    """What the layer computes with between its projections."""

    conv: mx.array  # [c, C]
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
        super().__init__()  # type: ignore[no-untyped-call]
        if getattr(layer, "sharding_group", None) is not None:
            raise UnsupportedModelError(
                "a gated-delta layer split over several machines can't be rolled back",
                hint="Load the model on one machine.",
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
        self.in_proj = input_projections(layer)
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
        """[B, T, H] to [B, T, H], appended to `cache`; no row may be padding, so `mask` is None."""
        if mask is not None:
            raise InternalError("a gated-delta layer was given a mask, but no row may be padding")
        inputs = self._project(x)
        before = self._before(x, cache)
        forward = self._with_metal_kernel if self.uses_metal_kernel else self._with_plain_ops
        y, state, tape = forward(inputs, before)
        if cache is not None:
            cache.record(tape, state)
        output: mx.array = self.out_proj(y)
        return output

    def _project(self, x: mx.array) -> _Inputs:
        outputs = [layer(x) for layer in self.in_proj]
        joined = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=-1)
        gate_end = self.conv_dim + self.value_dim
        cuts = [self.conv_dim, gate_end, gate_end + self.num_v_heads]
        return _Inputs(*mx.split(joined, cuts, axis=-1))

    def _before(self, x: mx.array, cache: RecurrentCache | None) -> _Before:
        window, state = (cache[0], cache[1]) if cache is not None else (None, None)
        batch = x.shape[0]
        if window is None:
            window = mx.zeros((batch, self.num_kept, self.conv_dim), x.dtype)
        if state is None:
            shape = (batch, self.num_v_heads, self.head_v_dim, self.head_k_dim)
            state = mx.zeros(shape, mx.float32)
        return _Before(window, state)

    def _with_plain_ops(self, inputs: _Inputs, before: _Before) -> tuple[mx.array, mx.array, Tape]:
        """Gated output [B, T, Hv Dv], the state after all rows, and the tape for part of them."""
        num_rows = inputs.mixed.shape[1]
        arguments = (inputs, before, self._constants, self.norm_eps)
        if num_rows == 1:
            y, window, after = _one_row(*arguments)
            return y, after, Tape(1, window, lambda _: after)
        if num_rows <= _MAX_BLOCK_ROWS:
            y, window, after, *parts = _few_rows(*arguments)
            return y, after, Tape(num_rows, window, partial(_after_block, parts, before.state))
        window, rows = _mix(inputs, before, self._constants)
        y, after = chunked(rows, before.state)
        y = _gated_norm(y, inputs.gate, self._constants.norm, self.norm_eps)
        return y, after, Tape(num_rows, window, partial(_after_chunks, rows, before.state))

    def _with_metal_kernel(
        self, inputs: _Inputs, before: _Before
    ) -> tuple[mx.array, mx.array, Tape]:
        """The same with mlx-lm's kernel, for bitwise the stock result."""
        batch, num_rows, _ = inputs.mixed.shape
        window = mx.concatenate([before.window, inputs.mixed], axis=1)
        mixed = nn.silu(self.conv1d(window))
        q, k, v = mx.split(mixed, [self.key_dim, 2 * self.key_dim], axis=-1)
        shape = (batch, num_rows, self.num_k_heads, self.head_k_dim)
        q, k = normalize_qk(
            q.reshape(shape), k.reshape(shape), inv_scale=self.head_k_dim**-0.5, eps=_NORM_EPS
        )
        v = v.reshape(batch, num_rows, self.num_v_heads, self.head_v_dim)
        rows = (q, k, v, inputs.decay, inputs.beta)

        def update(num_updated: int) -> tuple[mx.array, mx.array]:
            cut = (array[:, :num_updated] for array in rows)
            y, after = gated_delta_update(*cut, self.A_log, self.dt_bias, before.state, None)
            return y, after

        y, after = update(num_rows)
        y = self.norm(y, inputs.gate.reshape(v.shape)).reshape(inputs.gate.shape)
        return y, after, Tape(num_rows, window, lambda n: update(n)[1])


def install_gated_delta(model: nn.Module) -> int:
    """Replace every gated-delta layer of this instance; returns how many there were."""
    num_installed = 0
    for layer in getattr(model, "layers", ()):
        stock = getattr(layer, "linear_attn", None)
        if isinstance(stock, qwen3_next.Qwen3NextGatedDeltaNet | qwen3_5.GatedDeltaNet):
            layer.linear_attn = CapturingGatedDelta(stock)
            num_installed += 1
    return num_installed


def _mix(inputs: _Inputs, before: _Before, constants: _Constants) -> tuple[mx.array, Rows]:
    """The convolution input [B, c - 1 + T, C], and the rows for the recurrence, in float32."""
    batch, num_rows, width = inputs.mixed.shape
    _, num_v, dim_v, dim_k = before.state.shape
    num_k = (width - num_v * dim_v) // (2 * dim_k)
    window = mx.concatenate([before.window, inputs.mixed], axis=1)
    # A depthwise convolution as a sum over overlapping views: several times faster than conv1d.
    strides = (window.shape[1] * width, width, width, 1)
    views = mx.as_strided(window, (batch, num_rows, constants.conv.shape[0], width), strides)
    mixed = (views * constants.conv).sum(axis=2)
    mixed = (mixed * mx.sigmoid(mixed)).astype(mx.float32)
    pairs, v = mx.split(mixed, [2 * num_k * dim_k], axis=-1)
    pairs = pairs.reshape(batch, num_rows, 2, num_k, dim_k)
    pairs = pairs * mx.rsqrt(mx.square(pairs).sum(axis=-1, keepdims=True) + _NORM_EPS)
    rows = Rows(
        q=pairs[:, :, 0] * dim_k**-0.5,
        k=pairs[:, :, 1],
        v=v.reshape(batch, num_rows, num_v, dim_v),
        log_decay=mx.logaddexp(inputs.decay + constants.dt_bias, 0.0) * constants.rate,
        beta=mx.sigmoid(inputs.beta).astype(mx.float32),
    )
    return window, rows


def _gated_norm(y: mx.array, gate: mx.array, weight: mx.array, eps: float) -> mx.array:
    """RMS norm of y [B, T, Hv, Dv] times silu of the gate: [B, T, Hv Dv], in the gate's type."""
    normed = mx.fast.rms_norm(y, weight.astype(mx.float32), eps).reshape(gate.shape)
    wide = gate.astype(mx.float32)
    return (normed * (wide * mx.sigmoid(wide))).astype(gate.dtype)


@mx.compile
def _one_row(
    inputs: _Inputs, before: _Before, constants: _Constants, eps: float
) -> tuple[mx.array, mx.array, mx.array]:
    """Gated output, convolution input and the state after the row."""
    inputs, before, constants = _Inputs(*inputs), _Before(*before), _Constants(*constants)
    window, rows = _mix(inputs, before, constants)
    y, after = step(rows, before.state)
    return _gated_norm(y, inputs.gate, constants.norm, eps), window, after


@mx.compile
def _few_rows(
    inputs: _Inputs, before: _Before, constants: _Constants, eps: float
) -> tuple[mx.array, ...]:
    """Gated output, convolution input, state after all rows, and what `state_after` takes."""
    inputs, before, constants = _Inputs(*inputs), _Before(*before), _Constants(*constants)
    window, rows = _mix(inputs, before, constants)
    result = block(rows, before.state)
    y = _gated_norm(result.y, inputs.gate, constants.norm, eps)
    return y, window, result.state, result.innovations, result.keys, result.log_decays


_compiled_state_after = mx.compile(state_after)


def _after_block(parts: list[mx.array], state: mx.array, num_rows: int) -> mx.array:
    innovations, keys, log_decays = parts
    after: mx.array = _compiled_state_after(
        innovations[..., :num_rows, :], keys[..., :num_rows, :], log_decays[..., :num_rows], state
    )
    return after


def _after_chunks(rows: Rows, state: mx.array, num_rows: int) -> mx.array:
    return chunked(rows.cut(slice(num_rows)), state)[1]
