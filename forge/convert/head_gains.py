"""The head's norm gains as they multiply, in float32."""

from __future__ import annotations

import mlx.core as mx

from mtplx.contracts.errors import HeadWeightsError
from mtplx.contracts.inspection import Inspection
from mtplx.contracts.norms import trunk_norm_encoding
from mtplx.forge.convert.published import read, tensor_index, trunk_names, unpacked
from mtplx.runtime.loading.arrays import Weights
from mtplx.runtime.loading.norms import norm_names, shift_norms, stored_as_delta


def absolute_gains(
    inspection: Inspection, weights: Weights, *, may_doubt: bool
) -> tuple[Weights, list[str]]:
    """`weights` with gains in float32, one added where they are stored without it, and notes.

    Where neither provenance nor the values can tell and it `may_doubt`, gains stay as they are
    stored and a note says so: calibration measures it.

    Raises:
        HeadWeightsError: nothing can tell, and it may not doubt.
    """
    is_delta, notes = _is_delta(inspection, weights, may_doubt=may_doubt)
    if is_delta:
        return shift_norms(weights), notes
    norms = set(norm_names(weights))
    return {n: w.astype(mx.float32) if n in norms else w for n, w in weights.items()}, notes


def _is_delta(
    inspection: Inspection, weights: Weights, *, may_doubt: bool
) -> tuple[bool, list[str]]:
    if inspection.norm_encoding != "undecided-needs-values":
        return inspection.norm_encoding == "delta", []
    try:
        is_delta = stored_as_delta(weights, _trunk_gains(inspection))
    except HeadWeightsError as error:
        if not may_doubt:
            raise HeadWeightsError(
                error.message,
                hint="Build with calibration, which finds the convention of every norm by measurement.",
            ) from error
        return False, [
            f"The norm convention of the head is not certain and its gains are kept as stored: {error.message}"
        ]
    told = "gain minus one" if is_delta else "gain"
    return is_delta, [f"The norm convention of the head was told from its q/k norms: {told}."]


def _trunk_gains(inspection: Inspection) -> Weights:
    """The trunk's q/k norms as mlx-lm loads them."""
    names = [n for n in trunk_names(inspection) if n.endswith((".q_norm.weight", ".k_norm.weight"))]
    gains = unpacked(inspection, read(inspection, names), mx.float32)
    family = inspection.family
    if family is None or trunk_norm_encoding(family, tensor_index(inspection)) != "delta":
        return gains
    return shift_norms(gains)
