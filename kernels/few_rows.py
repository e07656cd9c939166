"""Matrix products of a few rows, as decoding does them on the CPU."""

from __future__ import annotations

import mlx.core as mx

# Measured with MKL on float32 weights of 3 to 16 MiB: up to here W @ x.T beats x @ W.T, by up to
# 2.5 times.
_MAX_ROWS = 5


def few_rows(x: mx.array, weight: mx.array) -> mx.array:
    """`x @ weight.T` up to rounding, for x [..., D] and weight [N, D]: [..., N].

    A BLAS reads the weights at a fraction of the memory's speed when they are the transposed right
    operand of a product with few rows. As the left operand they are read at full speed from two
    rows on, so a single row is multiplied twice.
    """
    *lead, width = x.shape
    num_rows = x.size // width
    if num_rows > _MAX_ROWS:
        return x @ weight.T
    rows = x.reshape(num_rows, width)
    if num_rows == 1:
        rows = mx.concatenate([rows, rows])
    y = (weight @ rows.T)[:, :num_rows]
    return y.T.reshape(*lead, weight.shape[0])
