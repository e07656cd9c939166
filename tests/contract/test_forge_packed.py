"""Sources that other tools packed, built end to end: the artifact holds what their words stand for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mtplx.contracts.runtime_contract import read_contract
from tests.contract.test_forge_artifact import HEAD, build, trunk_tensors
from tests.support.forged import assert_close_logits, assert_same_logits
from tests.support.tensorfile import encode, read_tensors, read_values, write_tensors
from tests.support.tiny import unpacked_copy
from tests.support.tiny_weights import stored_dtype

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory
    from tests.support.tiny_families import FamilyName

Kind = Literal["fp8", "awq", "gptq", "compressed"]

FORMATS: dict[Kind, str] = {
    "fp8": "fp8_block",
    "awq": "awq",
    "gptq": "gptq",
    "compressed": "compressed_tensors_awq",
}
QUICK: tuple[FamilyName, ...] = ("qwen3_5", "deepseek_v3", "mimo")
SLOW: tuple[FamilyName, ...] = ("qwen3_5_moe", "qwen3_next", "glm4_moe")
# Root mean square of the error of logits by their spread, for products rounded to bfloat16 once.
ROUNDED = 0.02
FOUR_BITS = json.dumps({"name": "four", "body_bits": 4, "mtp_policy": "q8"})

every_kind = pytest.mark.parametrize("kind", FORMATS)
every_family = pytest.mark.parametrize(
    "family", [*QUICK, *(pytest.param(family, marks=pytest.mark.slow) for family in SLOW)]
)


def packed(tiny: TinyFactory, family: FamilyName, kind: Kind) -> Path:
    how: dict[str, Any] = {"fp8": True} if kind == "fp8" else {"pack": kind}
    return tiny(family, hidden=128, **how)


def dequantised(source: Path) -> Path:
    """The same model with the values of its words as bfloat16, computed in numpy."""
    folder = unpacked_copy(source)
    path = folder / "model.safetensors"
    tensors = {n: encode(v, stored_dtype(n, "BF16")) for n, v in read_values(path).items()}
    write_tensors(path, tensors)
    return folder


@every_kind
@every_family
def test_a_lossless_artifact_computes_what_the_dequantised_source_does(
    tiny: TinyFactory, tmp_path: Path, family: FamilyName, kind: Kind
) -> None:
    source = packed(tiny, family, kind)
    artifact = build(source, tmp_path / "out", "lossless")
    assert_same_logits(artifact, dequantised(source))
    # Loaded from its words on a CPU, the source is not rounded to bfloat16 between.
    assert_close_logits(artifact, source, ROUNDED)
    contract = read_contract(artifact)
    assert contract is not None
    assert contract.forge_provenance is not None
    assert contract.forge_provenance.source_format == FORMATS[kind]


@every_kind
@every_family
def test_a_packed_source_is_quantised_like_its_dequantised_copy(
    tiny: TinyFactory, tmp_path: Path, family: FamilyName, kind: Kind
) -> None:
    source = packed(tiny, family, kind)
    found = build(source, tmp_path / "packed", FOUR_BITS)
    expected = build(dequantised(source), tmp_path / "plain", FOUR_BITS)
    words = [name for name, tensor in trunk_tensors(found).items() if tensor.dtype == "U32"]
    assert words
    assert trunk_tensors(found) == trunk_tensors(expected)
    assert read_tensors(found / HEAD) == read_tensors(expected / HEAD)
