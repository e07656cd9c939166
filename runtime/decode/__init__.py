"""Prefill, rounds of draft-verify-accept-commit, and what turns their tokens into events."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
