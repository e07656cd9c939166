"""Which MLX back end is installed, and making it usable: the one place that imports mlx first."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from mtplx.contracts.errors import BackendError
from mtplx.kernels.blas import Blas, load_blas

TF32_KEY = "MLX_ENABLE_TF32"

_DISTRIBUTIONS = {
    "mlx-metal": "metal",
    "mlx-cuda-13": "cuda",
    "mlx-cuda-12": "cuda",
    "mlx-cpu": "cpu",
}


@dataclass(frozen=True, slots=True)
class Backend:
    """The MLX back end in use.

    `device` is where arrays are computed ("cpu" or "gpu"), `blas` the library that serves float32 products on the
    CPU (None: the reference BLAS of the wheel), `notes` what a user should know about it.
    """

    kind: str
    device: str
    mlx_version: str
    blas: Blas | None
    notes: tuple[str, ...]


@lru_cache(maxsize=1)
def ensure_backend() -> Backend:
    """Import mlx with the fastest BLAS bound where the CPU computes.

    Raises:
        BackendError: no MLX back end is installed, or it can't be imported.
    """
    kinds = installed_backends()
    notes: list[str] = []
    blas: Blas | None = None
    if kinds == ["cpu"]:
        if "mlx.core" in sys.modules:
            notes.append("mlx was imported before mtplx, so the reference BLAS stays in use")
        else:
            blas = load_blas()
            if blas is None:
                notes.append("no MKL or OpenBLAS found: the slow reference BLAS is in use")
        if shutil.which("g++") is None:
            notes.append("no g++ found: MLX runs its fused CPU functions unfused, which is slower")
    if "cuda" in kinds:
        # MLX rounds float32 products to 10 bits on CUDA unless told otherwise, the recurrent states of hybrid models
        # among them. Products of 16-bit weights are not concerned.
        os.environ.setdefault(TF32_KEY, "0")
    try:
        mx = importlib.import_module("mlx.core")
    except ImportError as error:
        raise BackendError(
            f"no MLX back end can be imported: {error}", hint=install_hint()
        ) from error
    device = "gpu" if mx.default_device() == mx.gpu else "cpu"
    kind = kinds[0] if kinds else device
    return Backend(kind, device, mx.__version__, blas, tuple(notes))


def installed_backends() -> list[str]:
    """Kinds of the installed MLX wheels, without importing them."""
    kinds = []
    for distribution, kind in _DISTRIBUTIONS.items():
        try:
            importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        kinds.append(kind)
    return kinds


def install_hint() -> str:
    """The command that installs a back end for this platform."""
    if sys.platform == "darwin":
        return "install one with: pip install mtplx (Apple Silicon, macOS 14 or newer)"
    return (
        'install one with: pip install "mtplx[cpu]", or on an NVIDIA GPU '
        'pip install "mtplx[cuda13]" (or "mtplx[cuda12]"); never both'
    )


def describe() -> dict[str, Any]:
    """The back end as plain data for JSON output."""
    return asdict(ensure_backend())
