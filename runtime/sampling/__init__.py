"""Sampling: processed distributions, keyed noise and the laws of acceptance."""

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported.
ensure_backend()

from mtplx.runtime.sampling.acceptance import ACCEPTANCE_NAMES, Acceptance, make_acceptance
from mtplx.runtime.sampling.finite import NonFinite, describe_nonfinite, finite_rows
from mtplx.runtime.sampling.history import TokenHistory
from mtplx.runtime.sampling.noise import MAX_SEED, Noise, Stream
from mtplx.runtime.sampling.params import SamplingParams
from mtplx.runtime.sampling.pipeline import SamplingPipeline
from mtplx.runtime.sampling.verdict import DraftScores, Verdict

__all__ = [
    "ACCEPTANCE_NAMES",
    "MAX_SEED",
    "Acceptance",
    "DraftScores",
    "Noise",
    "NonFinite",
    "SamplingParams",
    "SamplingPipeline",
    "Stream",
    "TokenHistory",
    "Verdict",
    "describe_nonfinite",
    "finite_rows",
    "make_acceptance",
]
