"""A real BLAS for the CPU back end.

The mlx-cpu wheel links the reference BLAS. A shared library that exports `cblas_sgemm` and is loaded with
`RTLD_GLOBAL` before `mlx.core` is imported is bound instead, which makes float32 matrix products several times
faster. MKL (the `mkl` package of the `cpu` extra) and OpenBLAS (of the system) are looked for; when both are
there, the one that multiplies decode-shaped matrices faster is taken.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import site
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtplx.contracts.errors import BackendError

ENVIRONMENT_KEY = "MTPLX_BLAS"

_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112
_ROWS = (1, 2, 4)
# [out, in]: large enough to be read from memory, small enough to time in milliseconds.
_SHAPE = (1536, 1024)


@dataclass(frozen=True, slots=True)
class Blas:
    """One BLAS shared library; `seconds` is its time over the probe products, None when not measured."""

    name: str
    path: str
    seconds: float | None = None


def find_blas() -> list[Blas]:
    """BLAS libraries on this machine that export `cblas_sgemm`, without loading any."""
    found: dict[str, Blas] = {}
    for path in _candidate_paths():
        real = str(Path(path).resolve()) if os.sep in path else path
        found.setdefault(real, _named(path))
    return list(found.values())


def load_blas() -> Blas | None:
    """Load the best BLAS so that mlx binds to it; None when there is none (or `MTPLX_BLAS=none`).

    `MTPLX_BLAS` may name a library file instead. Must run before `mlx.core` is imported. Of the libraries found, one
    that can't be loaded or multiplies wrongly is passed over.

    Raises:
        BackendError: the library that `MTPLX_BLAS` names can't be used.
    """
    override = os.environ.get(ENVIRONMENT_KEY, "")
    if override.lower() == "none":
        return None
    candidates = [_named(override)] if override else find_blas()
    measured = [found for found in map(_measure, candidates) if found is not None]
    if override and not measured:
        raise BackendError(
            f"{ENVIRONMENT_KEY} names {override!r}, which is no library with a working cblas_sgemm",
            hint=f"name a file such as libopenblas.so.0, or {ENVIRONMENT_KEY}=none",
        )
    if not measured:
        return None
    best = min(measured, key=lambda found: found.seconds or 0.0)
    ctypes.CDLL(best.path, mode=ctypes.RTLD_GLOBAL)
    return best


def _named(path: str) -> Blas:
    return Blas("mkl" if "mkl" in Path(path).name else "openblas", path)


def _candidate_paths() -> Iterator[str]:
    roots = {Path(sys.prefix) / "lib", Path(site.getuserbase()) / "lib"}
    for root in sorted(roots):
        yield from sorted(str(p) for p in root.glob("libmkl_rt.so*"))
    for root in (Path("/opt/intel/oneapi/mkl/latest/lib"),):
        yield from sorted(str(p) for p in root.glob("libmkl_rt.so*"))
    system = ctypes.util.find_library("openblas")
    if system is not None:
        yield system


def _measure(candidate: Blas) -> Blas | None:
    """`candidate` with the time of x @ W.T for a few rows, or None when it can't be used."""
    try:
        sgemm = ctypes.CDLL(candidate.path).cblas_sgemm
    except (OSError, AttributeError):
        return None
    out_dim, in_dim = _SHAPE
    weight = np.ones(_SHAPE, np.float32)
    best = 0.0
    for rows in _ROWS:
        x = np.ones((rows, in_dim), np.float32)
        y = np.empty((rows, out_dim), np.float32)
        times = []
        for _ in range(8):
            start = time.perf_counter()
            _call(sgemm, x, weight, y)
            times.append(time.perf_counter() - start)
        if not np.all(y == in_dim):
            return None
        best += min(times)
    return Blas(candidate.name, candidate.path, best)


def _call(
    sgemm: ctypes._NamedFuncPointer,
    x: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    weight: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    y: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    """y [M, N] = x [M, K] @ weight [N, K].T"""
    (rows, in_dim), out_dim = x.shape, weight.shape[0]
    pointer = ctypes.POINTER(ctypes.c_float)
    sgemm(
        _ROW_MAJOR,
        _NO_TRANS,
        _TRANS,
        rows,
        out_dim,
        in_dim,
        ctypes.c_float(1.0),
        x.ctypes.data_as(pointer),
        in_dim,
        weight.ctypes.data_as(pointer),
        in_dim,
        ctypes.c_float(0.0),
        y.ctypes.data_as(pointer),
        out_dim,
    )
