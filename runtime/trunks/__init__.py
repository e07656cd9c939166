"""Trunks: mlx-lm models seen as hidden states and logits."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()
