"""MTP heads: one module for all layouts, one file of names for each."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
