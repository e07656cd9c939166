"""Caches of attention and recurrent layers that keep part of what they were given."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
