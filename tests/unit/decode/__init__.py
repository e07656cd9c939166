"""Tests of decoding: text, stops, depth, statistics, options, costs."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
