"""From a checkpoint to an artifact: what is measured about a head before it is trusted."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
