"""The child process that tries MLX: one JSON line a stage, so that a crash leaves what was found.

`{"backend": {...}}` or `{"error": {...}}`, then `{"chip": "..."}` (the name of the device),
`{"gpu_memory": {...}}` (`free` and `total` bytes of a GPU that has its own), `{"products": [...]}`
and `{"kernels": [...]}`. Each product and kernel has `name`, `error` (largest deviation over the
largest expected value, null when not finite) and `bound`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from mtplx.contracts.errors import MTPLXError
from mtplx.kernels.backend import describe
from mtplx.runtime.tuning.conditions import chip_name

_Floats = npt.NDArray[np.float64]


class Deviation(TypedDict):
    """How far one result is from the expected one, and how far it may be."""

    name: str
    error: float | None
    bound: float


def main() -> None:
    """Try all stages and print what each found."""
    try:
        _tell("backend", describe())
    except MTPLXError as error:
        _tell("error", error.to_json())
        return
    _tell("chip", chip_name())
    if (memory := gpu_memory()) is not None:
        _tell("gpu_memory", memory)
    _tell("products", [*plain_products(), quantized_product()])
    _tell("kernels", [*few_rows_deviations(), *gated_delta_deviations()])


def gpu_memory() -> dict[str, int] | None:
    """Bytes that are free and in all on the GPU; None where arrays lie in the system's memory."""
    import mlx.core as mx

    found = mx.device_info()
    if "free_memory" not in found or "total_memory" not in found:
        return None
    return {"free": int(found["free_memory"]), "total": int(found["total_memory"])}


def plain_products() -> Iterator[Deviation]:
    """Products of values that every type holds exactly, so that only the result is rounded."""
    import mlx.core as mx

    rng = np.random.default_rng(0)
    left = rng.integers(-8, 9, (5, 96)) / 8.0
    right = rng.integers(-8, 9, (96, 64)) / 8.0
    for name, dtype, bound in (
        ("float32", mx.float32, 1e-6),
        ("float16", mx.float16, 2e-3),
        ("bfloat16", mx.bfloat16, 2e-2),
    ):
        a = mx.array(left.astype(np.float32)).astype(dtype)
        b = mx.array(right.astype(np.float32)).astype(dtype)
        found = np.array((a @ b).astype(mx.float32))
        yield _deviation(name, found, left @ right, bound)


def quantized_product() -> Deviation:
    """A 4-bit product against NumPy's, which unpacks the weight by itself."""
    import mlx.core as mx

    group, bits = 64, 4
    rng = np.random.default_rng(1)
    x = rng.integers(-8, 9, (3, 128)) / 8.0
    weight = rng.standard_normal((32, 128)).astype(np.float32)
    packed, scales, biases = mx.quantize(mx.array(weight), group_size=group, bits=bits)
    found = mx.quantized_matmul(
        mx.array(x.astype(np.float32)), packed, scales, biases, group_size=group, bits=bits
    )
    # Eight values a word, the first in the lowest bits.
    words = np.array(packed)[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)
    codes = (words & (2**bits - 1)).reshape(32, -1, group)
    plain = codes * np.array(scales)[..., None] + np.array(biases)[..., None]
    return _deviation("4-bit", np.array(found), x @ plain.reshape(weight.shape).T, 1e-4)


def few_rows_deviations() -> Iterator[Deviation]:
    """Products of few rows against plain ones, where they take other forms than it."""
    import mlx.core as mx

    from mtplx.kernels.few_rows import few_rows

    rng = np.random.default_rng(2)
    for rows, width, out in ((1, 40, 64), (3, 40, 64), (4, 64, 40), (5, 40, 64)):
        x = mx.array(rng.standard_normal((rows, width)).astype(np.float32))
        weight = mx.array(rng.standard_normal((out, width)).astype(np.float32))
        found, plain = np.array(few_rows(x, weight)), np.array(x @ weight.T)
        yield _deviation(f"few_rows of {rows}", found, plain, 1e-5)


def gated_delta_deviations() -> Iterator[Deviation]:
    """The closed forms of the gated delta rule against the rule row by row."""
    import mlx.core as mx

    from mtplx.kernels.gated_delta import Rows, block, chunked, recurrence

    rng = np.random.default_rng(3)
    num_rows, num_k, num_v, dim = 40, 2, 4, 16

    def normal(*shape: int) -> mx.array:
        return mx.array(rng.standard_normal(shape).astype(np.float32))

    keys = normal(1, num_rows, num_k, dim)
    rows = Rows(
        q=normal(1, num_rows, num_k, dim) * dim**-0.5,
        k=keys / mx.linalg.norm(keys, axis=-1, keepdims=True),
        v=normal(1, num_rows, num_v, dim),
        log_decay=-mx.abs(normal(1, num_rows, num_v)),
        beta=mx.sigmoid(normal(1, num_rows, num_v)),
    )
    state = normal(1, num_v, dim, dim)
    y, states = recurrence(rows, state)
    few = rows.cut(slice(0, 5))
    forms = {
        "gated_delta block": (block(few, state).y, block(few, state).state, y[:, :5], states[4]),
        "gated_delta chunked": (*chunked(rows, state), y, states[-1]),
    }
    for name, (found, found_state, plain, plain_state) in forms.items():
        yield _deviation(name, np.array(found), np.array(plain), 1e-4)
        yield _deviation(f"{name} state", np.array(found_state), np.array(plain_state), 1e-4)


def _deviation(
    name: str,
    found: npt.NDArray[np.float32],
    expected: npt.NDArray[np.float32] | _Floats,
    bound: float,
) -> Deviation:
    error = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
    return Deviation(name=name, error=error if math.isfinite(error) else None, bound=bound)


def _tell(stage: str, found: object) -> None:
    print(json.dumps({stage: found}), flush=True)


if __name__ == "__main__":
    main()
