"""What form the weights of a model folder have, as forge tells sources apart."""

from collections.abc import Iterator
from enum import StrEnum

from mtplx.contracts import quantization
from mtplx.contracts.inspection_report import Inspection
from mtplx.contracts.packed_tensors import FOREIGN_SUFFIXES
from mtplx.contracts.tensor_header import TensorInfo

_PLAIN = frozenset({"BF16", "F16", "F32"})


class SourceFormat(StrEnum):
    """The form of a checkpoint's weights.

    bf16_native: plain floating tensors (float16 and float32 count too).
    fp8_block: e4m3 with a scale for each block.
    mlx_affine: quantised by MLX in any of its modes, without an MTP head.
    mlx_affine_with_mtp: the same with a head, embedded or in a file beside.
    compressed_tensors_awq: any compressed-tensors pack that mtplx unpacks.
    gptq, awq: packs of these tools.
    unknown: none of these, or the inspection ended before it could tell.
    """

    BF16_NATIVE = "bf16_native"
    FP8_BLOCK = "fp8_block"
    MLX_AFFINE = "mlx_affine"
    MLX_AFFINE_WITH_MTP = "mlx_affine_with_mtp"
    COMPRESSED_TENSORS_AWQ = "compressed_tensors_awq"
    GPTQ = "gptq"
    AWQ = "awq"
    UNKNOWN = "unknown"


_BY_SCHEME = {
    "fp8": SourceFormat.FP8_BLOCK,
    "awq": SourceFormat.AWQ,
    "gptq": SourceFormat.GPTQ,
    "compressed-tensors": SourceFormat.COMPRESSED_TENSORS_AWQ,
}


def source_format(inspection: Inspection) -> SourceFormat:
    """The form of the inspected weights, as far as the inspection came."""
    settings = quantization.summary(inspection.quantization)
    if settings is None:
        return SourceFormat.BF16_NATIVE if _is_plain(inspection) else SourceFormat.UNKNOWN
    if settings["scheme"] == "mlx":
        has_head = inspection.head_tensors is not None
        return SourceFormat.MLX_AFFINE_WITH_MTP if has_head else SourceFormat.MLX_AFFINE
    return _BY_SCHEME[settings["scheme"]]


def _is_plain(inspection: Inspection) -> bool:
    """Whether every weight of the trunk is a plain floating tensor; no block in the config says so
    only when the weights were seen too.
    """
    weights = list(_trunk_weights(inspection))
    return bool(weights) and all(tensor.dtype in _PLAIN for tensor in weights)


def _trunk_weights(inspection: Inspection) -> Iterator[TensorInfo]:
    head = inspection.head_tensors
    tensors = inspection.index.tensors if inspection.index else {}
    for name, tensor in tensors.items():
        if name.endswith((".weight", *FOREIGN_SUFFIXES)) and not (head and name in head.names):
            yield tensor
