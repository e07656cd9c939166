"""What the head's tensors are: each one known by name, and copies of the trunk's vocabulary told apart."""

from __future__ import annotations

import re
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.utils import infer_quant_config

from mtplx.contracts.errors import CorruptModelError, HeadWeightsError
from mtplx.contracts.families import text_config
from mtplx.contracts.family import Family
from mtplx.contracts.head_names import HeadTensors
from mtplx.contracts.inspection import Inspection
from mtplx.contracts.inspection_checks import counted
from mtplx.forge.convert.published import read, tensor_index, trunk_names, unpacked
from mtplx.runtime.heads.registry import find_layout
from mtplx.runtime.loading.arrays import Weights

_COMPARED_ROWS = 64
_VOCABULARY = ("own_embedding.weight", "own_output.weight")
_BLOCK = re.compile(r"^layers\.\d+\.")


def parameter(family: Family, relative: str) -> str | None:
    """The parameter of `MTPModule` that a head-relative name stands for, in whichever MTP layer.

    None for names that the family's layout does not know.
    """
    layout = find_layout(family.layout)
    if layout.block_prefix:
        return layout.parameter(_BLOCK.sub(layout.block_prefix, relative))
    return layout.parameter(relative.partition(".")[2])


def check_names(family: Family, head: HeadTensors) -> None:
    """Raise HeadWeightsError for tensors that the family's layout does not know."""
    unknown = [name for name, relative in head.names.items() if not parameter(family, relative)]
    if unknown:
        raise HeadWeightsError(
            counted(unknown, f"tensors of the head are not known to the {family.layout} layout"),
            hint="This is another head layout, or a newer one than this version reads.",
        )


def vocabulary_copies(
    inspection: Inspection, family: Family, head: HeadTensors
) -> tuple[dict[str, str], list[str]]:
    """Embedding and output tensors of the head that equal the trunk's, with the reason to drop them;
    and notes about those that differ. Rows from the whole vocabulary are compared, exactly.
    """
    dropped: dict[str, str] = {}
    notes: list[str] = []
    for name, relative in head.names.items():
        own = parameter(family, relative)
        if own not in _VOCABULARY:
            continue
        stem = name.removesuffix("weight")
        theirs = _trunk_matrix(inspection, is_output=own == "own_output.weight")
        if _equal(inspection, name, theirs):
            reason = f"a copy of the trunk's {theirs}"
            dropped.update({n: reason for n in head.names if n.startswith(stem)})
        else:
            notes.append(
                f"The head brings its own {name}, which differs from the trunk's {theirs}."
            )
    return dropped, notes


def infer_packing(stem: str, weights: Weights, width: int) -> dict[str, Any]:
    """Bits, group size and mode of the MLX-packed matrix `stem` with rows of `width` values."""
    found: dict[str, Any] = infer_quant_config(stem, nn.Linear(width, 1, bias=False), weights)
    return found


def _trunk_matrix(inspection: Inspection, *, is_output: bool) -> str:
    """Name of the trunk's output matrix, or of its embedding, which may be both."""
    names = trunk_names(inspection)
    wanted = ["embed_tokens.weight"]
    is_tied = text_config(inspection.config).get("tie_word_embeddings", False)
    if is_output and not is_tied:
        wanted.insert(0, "lm_head.weight")
    for suffix in wanted:
        for name in names:
            if f".{name}".endswith(f".{suffix}"):
                return name
    raise CorruptModelError(
        f"{inspection.path} has no {' or '.join(wanted)}.", hint="Fetch the model again."
    )


def _equal(inspection: Inspection, own: str, theirs: str) -> bool:
    """Whether both matrices hold the same rows; where only the trunk's is packed, the same once packed."""
    mine, other = _Matrix(inspection, own), _Matrix(inspection, theirs)
    if mine.num_rows != other.num_rows:
        return False
    rows = mx.arange(0, other.num_rows, max(1, other.num_rows // _COMPARED_ROWS))
    values, expected = mine.rows(rows), other.rows(rows)
    if values.shape != expected.shape:
        return False
    if other.packing and not mine.packing:
        packed = mx.quantize(values.astype(other.dtype), **other.packing)
        values = mx.dequantize(*packed, **other.packing)
    return bool(mx.array_equal(values.astype(mx.float32), expected.astype(mx.float32)).item())


class _Matrix:
    """A stored [V, H] matrix, plain or packed; each reads its own arrays, which go with it."""

    def __init__(self, inspection: Inspection, name: str) -> None:
        self._stem = name.removesuffix(".weight")
        parts = [n for n in tensor_index(inspection).tensors if n.startswith(f"{self._stem}.")]
        self._weights = unpacked(inspection, read(inspection, parts), mx.float32)
        self.packing: dict[str, Any] = {}
        if f"{self._stem}.scales" in self._weights:
            width = int(text_config(inspection.config)["hidden_size"])
            self.packing = infer_packing(self._stem, self._weights, width)

    @property
    def num_rows(self) -> int:
        """Rows of the vocabulary, V."""
        return int(self._weights[f"{self._stem}.weight"].shape[0])

    @property
    def dtype(self) -> mx.Dtype:
        """The type that values were packed from."""
        scales = self._weights.get(f"{self._stem}.scales")
        return mx.bfloat16 if scales is None or scales.dtype == mx.uint8 else scales.dtype

    def rows(self, rows: mx.array) -> mx.array:
        """The values of `rows`, [rows, H]."""
        weight = self._weights[f"{self._stem}.weight"][rows]
        if not self.packing:
            return weight
        scales = self._weights[f"{self._stem}.scales"][rows]
        biases = self._weights.get(f"{self._stem}.biases")
        return mx.dequantize(
            weight, scales, None if biases is None else biases[rows], **self.packing
        )
