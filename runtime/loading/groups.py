"""Quantised values times the scales of their groups."""

from __future__ import annotations

import mlx.core as mx


def dequantize(
    values: mx.array,
    zeros: mx.array | None,
    scales: mx.array,
    group_size: int | None,
    *,
    order: mx.array | None = None,
) -> mx.array:
    """`(value - zero) * scale` of a matrix in float32, `[out, in]`.

    `zeros` and `scales` are `[out, groups]`, or `[1, 1]` for the whole matrix. A group is
    `group_size` inputs in turn (None: all of them), or those that `order [in]` assigns to it.
    """
    values, scales = values.astype(mx.float32), scales.astype(mx.float32)
    zeros = None if zeros is None else zeros.astype(mx.float32)
    outputs, inputs = values.shape
    if order is not None:
        scales, zeros = scales[:, order], None if zeros is None else zeros[:, order]
    elif group_size is not None and inputs % group_size == 0:
        # Broadcasting spreads them without a copy as large as the matrix.
        values, scales = values.reshape(outputs, -1, group_size), scales[..., None]
        zeros = None if zeros is None else zeros[..., None]
    elif group_size is not None:
        scales = mx.repeat(scales, group_size, axis=1)[:, :inputs]
        zeros = None if zeros is None else mx.repeat(zeros, group_size, axis=1)[:, :inputs]
    return ((values if zeros is None else values - zeros) * scales).reshape(outputs, inputs)


def dequantize_blocks(values: mx.array, scales: mx.array, block: tuple[int, int]) -> mx.array:
    """`value * scale` in float32, one scale for each `block` of outputs and inputs."""
    rows, columns = block
    return dequantize(values, None, mx.repeat(scales, rows, axis=0)[: values.shape[0]], columns)
