"""Published weights into an artifact: shards, head and side files."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
