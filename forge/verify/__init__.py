"""Whether an artifact is exact and faster, with the evidence."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
