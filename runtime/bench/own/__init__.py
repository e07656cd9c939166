"""The process that measures mtplx, and what it does there."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
