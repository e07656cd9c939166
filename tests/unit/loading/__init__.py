"""Tests of loading: trunk, head, quantised and FP8 folders."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
