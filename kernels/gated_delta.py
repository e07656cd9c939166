"""The gated delta rule: one step, a short block in closed form, and a long prompt in chunks.

With decay g_t, rate b_t, unit key k_t, value v_t and query q_t, a head's state S [Dv, Dk] moves as

    d_t = b_t (v_t - g_t S k_t)        S <- g_t S + d_t k_t^T        y_t = S q_t

(Gated Delta Networks, arXiv 2412.06464). Over a block of T rows, with L_t = log g_1 + ... + log g_t
and S the state before it, the innovations d solve the unit lower triangular system

    d_t + b_t sum_{s<t} exp(L_t - L_s) (k_s . k_t) d_s = b_t (v_t - exp(L_t) S k_t)

(the WY form of arXiv 2406.06484), and S_n = exp(L_n) S + sum_{s<=n} exp(L_n - L_s) d_s k_s^T gives
the state after any n of the rows. A block therefore costs a few matrix products whatever T is.

Shapes: q, k [B, T, Hk, Dk]; v [B, T, Hv, Dv]; log_decay, beta [B, T, Hv]; state [B, Hv, Dv, Dk].
All float32; Hv is a multiple of Hk and each key head serves Hv / Hk neighbouring value heads. q
carries the readout scale.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import mlx.core as mx
import numpy as np

# Rows solved by powers of the matrix; their entries grow like binomials, so more are split.
_MAX_POWER_ROWS = 8
# Rows a chunk of a long prompt: the cost within chunks grows with it, the number of sequential
# steps shrinks.
_CHUNK = 32


class Rows(NamedTuple):
    """What the rule reads of T rows; see above for shapes. `q` carries the readout scale."""

    q: mx.array
    k: mx.array
    v: mx.array
    log_decay: mx.array
    beta: mx.array

    def cut(self, rows: slice) -> Rows:
        """Some of the rows."""
        return Rows(*(array[:, rows] for array in self))


class Block(NamedTuple):
    """Outputs y [B, T, Hv, Dv], the state after the block, and what gives it after part of it.

    `innovations` [B, Hk, R, T, Dv] with R = Hv / Hk, `keys` [B, Hk, T, Dk], `log_decays` [B, Hk, R,
    T] cumulative.
    """

    y: mx.array
    state: mx.array
    innovations: mx.array
    keys: mx.array
    log_decays: mx.array


def recurrence(rows: Rows, state: mx.array) -> tuple[mx.array, list[mx.array]]:
    """The rule row by row, plain twin of the other forms: y [B, T, Hv, Dv], every state."""
    ys, states = [], []
    for t in range(rows.q.shape[1]):
        y, state = step(rows.cut(slice(t, t + 1)), state)
        ys.append(y)
        states.append(state)
    return mx.concatenate(ys, axis=1), states


def step(rows: Rows, state: mx.array) -> tuple[mx.array, mx.array]:
    """One row (T = 1): y [B, 1, Hv, Dv] and the new state."""
    q, k, v, log_decay, beta = rows
    batch, _, num_k, dim_k = k.shape
    num_v, dim_v = v.shape[2:]
    # The value heads of a key head stand below one another, so that k and q are never repeated.
    tall = (batch, num_k, num_v // num_k * dim_v, dim_k)
    decay = mx.exp(log_decay).reshape(batch, num_v, 1, 1)
    key = k.reshape(batch, num_k, dim_k, 1)
    read = (state.reshape(tall) @ key).reshape(batch, num_v, dim_v, 1)
    innovation = (v.reshape(batch, num_v, dim_v, 1) - decay * read) * beta.reshape(
        batch, num_v, 1, 1
    )
    new_state = mx.addmm(
        (decay * state).reshape(tall),
        innovation.reshape(*tall[:3], 1),
        key.reshape(batch, num_k, 1, dim_k),
    )
    y = new_state @ q.reshape(batch, num_k, dim_k, 1)
    return y.reshape(batch, 1, num_v, dim_v), new_state.reshape(state.shape)


def block(rows: Rows, state: mx.array) -> Block:
    """A block of rows in closed form; meant for 2 to some 64 rows."""
    q, k, v, log_decay, beta = rows
    batch, num_rows, num_k, dim_k = k.shape
    num_v, dim_v = v.shape[2:]
    ratio = num_v // num_k
    keys = k.transpose(0, 2, 1, 3)
    both = mx.concatenate([q.transpose(0, 2, 1, 3), keys], axis=2)  # [B, Hk, 2T, Dk]
    logs = _per_value_head(mx.cumsum(log_decay, axis=1), num_k)[..., None, :]  # [B, Hk, R, 1, T]
    decays = mx.exp(logs[..., None] - logs[..., None, :] + _masks(num_rows))  # [B, Hk, R, 2, T, T]
    inner = decays * (both @ keys.swapaxes(-1, -2)).reshape(batch, num_k, 1, 2, num_rows, num_rows)
    reads = both @ state.reshape(batch, num_k, ratio * dim_v, dim_k).swapaxes(-1, -2)
    reads = reads.reshape(batch, num_k, 2, num_rows, ratio, dim_v).transpose(0, 1, 4, 2, 3, 5)
    reads = reads * mx.exp(logs)[..., None]  # [B, Hk, R, 2, T, Dv]
    rates = _per_value_head(beta, num_k)[..., None]  # [B, Hk, R, T, 1]
    values = v.reshape(batch, num_rows, num_k, ratio, dim_v).transpose(0, 2, 3, 1, 4)
    innovations = _solve(inner[:, :, :, 1] * rates, (values - reads[:, :, :, 1]) * rates)
    y = mx.addmm(reads[:, :, :, 0], inner[:, :, :, 0], innovations)
    logs = logs[..., 0, :]
    return Block(
        y.transpose(0, 3, 1, 2, 4).reshape(batch, num_rows, num_v, dim_v),
        state_after(innovations, keys, logs, state),
        innovations,
        keys,
        logs,
    )


def state_after(
    innovations: mx.array, keys: mx.array, log_decays: mx.array, state: mx.array
) -> mx.array:
    """The state after the rows of a `Block`, or after n when they are cut to the first n.

    `state` is the one before the block.
    """
    batch, num_k, ratio, _, dim_v = innovations.shape
    last = log_decays[..., -1:]
    weighted = innovations * mx.exp(last - log_decays)[..., None]
    before = state.reshape(batch, num_k, ratio, dim_v, -1) * mx.exp(last)[..., None]
    after = mx.addmm(before, weighted.swapaxes(-1, -2), keys[:, :, None])
    return after.reshape(state.shape)


def chunked(rows: Rows, state: mx.array) -> tuple[mx.array, mx.array]:
    """Any number of rows in chunks: y [B, T, Hv, Dv] and the state after the last row.

    What does not depend on the state is computed for all chunks at once. The last chunk is filled
    up with rows that change nothing: no key, no rate, no decay.
    """
    batch, num_rows, num_k, dim_k = rows.k.shape
    num_v, dim_v = rows.v.shape[2:]
    ratio = num_v // num_k
    num_chunks = -(-num_rows // _CHUNK)
    q, k, v, log_decay, beta = (
        _chunks(x, num_chunks, num_k)
        for x in (*rows[:3], rows.log_decay[..., None], rows.beta[..., None])
    )  # [B, N, H, C, D] for q and k, [B, N, Hk, R, C, D] for the others
    q, k = q[:, :, :, 0], k[:, :, :, 0]
    logs = mx.cumsum(log_decay[..., 0], axis=-1)  # [B, N, Hk, R, C]
    masks = _masks(_CHUNK)
    gaps = logs[..., None] - logs[..., None, :]
    transposed = k.swapaxes(-1, -2)
    readout = mx.exp(gaps + masks[0]) * (q @ transposed)[:, :, :, None]
    system = mx.exp(gaps + masks[1]) * (k @ transposed)[:, :, :, None] * beta
    decay = mx.exp(logs)[..., None]
    # d = free - bound S^T for the state S before the chunk.
    solved = _solve(system, mx.concatenate([v, k[:, :, :, None] * decay], axis=-1) * beta)
    free, bound = solved[..., :dim_v], solved[..., dim_v:]
    queries = q[:, :, :, None] * decay
    keys = k[:, :, :, None] * mx.exp(logs[..., -1:] - logs)[..., None]
    total = decay[..., -1:, :]
    shape = state.shape
    state = state.reshape(batch, num_k, ratio, dim_v, dim_k)
    ys = []
    for i in range(num_chunks):
        flipped = state.swapaxes(-1, -2)
        innovations = mx.addmm(free[:, i], bound[:, i], flipped, alpha=-1.0)
        ys.append(mx.addmm(queries[:, i] @ flipped, readout[:, i], innovations))
        state = mx.addmm(state * total[:, i], innovations.swapaxes(-1, -2), keys[:, i])
    y = mx.stack(ys, axis=1).transpose(0, 1, 4, 2, 3, 5).reshape(batch, -1, num_v, dim_v)
    return y[:, :num_rows], state.reshape(shape)


def _chunks(x: mx.array, num_chunks: int, num_k: int) -> mx.array:
    """[B, T, H, D] to [B, N, Hk, H / Hk, C, D], filled up with zeros."""
    batch, num_rows, num_heads, dim = x.shape
    missing = num_chunks * _CHUNK - num_rows
    if missing:
        x = mx.pad(x, [(0, 0), (0, missing), (0, 0), (0, 0)])
    x = x.reshape(batch, num_chunks, _CHUNK, num_k, num_heads // num_k, dim)
    return x.transpose(0, 1, 3, 4, 2, 5)


def _per_value_head(x: mx.array, num_k: int) -> mx.array:
    """[B, T, Hv] to [B, Hk, R, T]."""
    batch, num_rows, num_v = x.shape
    return x.reshape(batch, num_rows, num_k, num_v // num_k).transpose(0, 2, 3, 1)


@lru_cache(maxsize=128)
def _masks(num_rows: int) -> mx.array:
    """[2, T, T]: 0 where row t sees row s, else -inf. Queries see s <= t, keys s < t."""
    # By numpy: an array made while a compiled function is traced would belong to that trace.
    ones = np.ones((num_rows, num_rows), bool)
    seen = np.stack([np.tril(ones), np.tril(ones, -1)])
    return mx.array(np.where(seen, 0.0, -np.inf).astype(np.float32))


def _solve(lower: mx.array, right: mx.array) -> mx.array:
    """x [..., T, D] of (I + lower) x = right, `lower` [..., T, T] being strictly lower triangular.

    Up to 8 rows: (I + A)^-1 = (I - A)(I + A^2)(I + A^4). Beyond, block forward substitution.
    """
    num_rows = lower.shape[-1]
    if num_rows <= _MAX_POWER_ROWS:
        x = mx.addmm(right, lower, right, alpha=-1.0)
        power, reach = lower, 2
        while reach < num_rows:
            power = power @ power
            x = mx.addmm(x, power, x)
            reach *= 2
        return x
    half = num_rows // 2
    top = _solve(lower[..., :half, :half], right[..., :half, :])
    rest = mx.addmm(right[..., half:, :], lower[..., half:, :half], top, alpha=-1.0)
    return mx.concatenate([top, _solve(lower[..., half:, half:], rest)], axis=-2)
