"""The tensors of a source, lazy: the text trunk's, the head's, and both without their packing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import mlx.core as mx

from mtplx.contracts.errors import InternalError
from mtplx.contracts.head_names import HeadTensors, looks_like_mtp
from mtplx.contracts.inspection import Inspection
from mtplx.contracts.inspection_checks import is_vision
from mtplx.contracts.tensors import TensorIndex
from mtplx.runtime.loading.arrays import Weights, read_arrays
from mtplx.runtime.loading.packed import is_packed, unpack

MadeBy = Literal["pt", "mlx"]


def trunk_names(inspection: Inspection) -> list[str]:
    """Names of the text trunk's tensors: no head, nothing that looks like one, no vision tower."""
    head = inspection.head_tensors
    used = head.names if head is not None else {}
    return [
        name
        for name in tensor_index(inspection).tensors
        if name not in used
        and not looks_like_mtp(name, inspection.num_layers)
        and not is_vision(name)
    ]


def read(inspection: Inspection, names: Iterable[str]) -> Weights:
    """The named tensors as stored, each a lazy array that nothing else refers to."""
    index = tensor_index(inspection)
    tensors = {name: index.tensors[name] for name in names}
    return read_arrays(replace(index, folder=inspection.path, tensors=tensors))


def unpacked(inspection: Inspection, weights: Weights, dtype: mx.Dtype) -> Weights:
    """`weights` with tensors that FP8, AWQ, GPTQ or compressed-tensors packed as plain ones of `dtype`."""
    return unpack(weights, inspection.config, dtype) if is_packed(weights) else weights


def is_mlx_quantized(inspection: Inspection) -> bool:
    """Whether the source is quantised by MLX, so that its tensors are taken as they are."""
    block = inspection.quantization
    return block is not None and "quant_method" not in block


def made_by(inspection: Inspection) -> MadeBy:
    """The layout of the trunk's files by their metadata: published, or converted by MLX."""
    index = tensor_index(inspection)
    formats = {
        index.metadata[index.tensors[name].file].get("format") for name in trunk_names(inspection)
    }
    return "mlx" if formats == {"mlx"} else "pt"


def tensor_index(inspection: Inspection) -> TensorIndex:
    """The index of an inspection that found weights."""
    if inspection.index is None:
        raise inspection.error or InternalError("an inspection without weights was converted")
    return inspection.index


def head_tensors(inspection: Inspection) -> HeadTensors:
    """The head of an inspection that found one."""
    if inspection.head_tensors is None:
        raise InternalError("a model without a head was converted")
    return inspection.head_tensors
