"""From a folder of weights to a trunk and a head, bound strictly."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
