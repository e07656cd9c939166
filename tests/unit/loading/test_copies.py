"""Copies of the trunk's embedding and output inside a head: dropped, unless they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import HeadWeightsError
from mtplx.runtime.loading.folder import load
from tests.support import disk as damage
from tests.support.tensorfile import Tensor, decode, encode, read_tensors, write_tensors
from tests.support.tiny_families import NEXTN, FamilyName
from tests.support.tiny_mlx import from_mlx
from tests.unit.loading.reading import bind, head_logits, parameters

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

SIDE = "mtp.safetensors"
SIDECARS: list[tuple[FamilyName, str]] = [("mimo", "model.mtp_layers.0."), ("qwen3_5", "mtp.")]
COPIES = {"embed_tokens": "own_embedding", "shared_head.head": "own_output"}


def change_rows(folder: Path, part: str, rows: slice) -> np.ndarray:
    """Negate rows of a copy; returns its new values."""
    path, name = damage.find_tensor(folder, rf"layers\.2\.{part}\.weight")
    values = decode(read_tensors(path)[name]).copy()
    values[rows] *= -1
    damage.replace_tensor(path, name, encode(values, "BF16"))
    return values


@pytest.mark.parametrize("family", NEXTN)
def test_equal_copies_are_dropped_and_the_trunks_are_used(
    shared_tiny: TinyFactory, family: FamilyName
) -> None:
    module, binding = bind(shared_tiny(family))
    assert set(binding.dropped) == {f"{own}.weight" for own in COPIES.values()}
    assert not any(name.startswith("own_") for name in parameters(module))
    assert not binding.notes


@pytest.mark.parametrize("family", NEXTN)
@pytest.mark.parametrize(("part", "own"), COPIES.items())
@pytest.mark.parametrize("rows", [slice(0, 64), slice(190, 200)], ids=["all", "last"])
def test_a_copy_that_differs_is_used_and_said(
    tiny: TinyFactory, family: FamilyName, part: str, own: str, rows: slice
) -> None:
    folder = tiny(family, vocab=200)
    same = head_logits(load(folder))
    values = change_rows(folder, part, rows)
    model = load(folder)
    assert model.head is not None
    loaded = parameters(model.head.module)
    np.testing.assert_array_equal(loaded[f"{own}.weight"], values)
    assert any("its own" in warning for warning in model.warnings)
    tokens = [191, 3, 195, 4, 192, 5, 193, 6]
    found = head_logits(model, tokens)
    assert not np.allclose(found, head_logits(load(tiny(family, vocab=200)), tokens), atol=1e-2)
    assert np.isfinite(same).all()


def test_a_copy_of_another_size_is_refused(tiny: TinyFactory) -> None:
    folder = tiny("glm4_moe")
    path, name = damage.find_tensor(folder, r"layers\.2\.shared_head\.head\.weight")
    damage.replace_tensor(path, name, encode(np.ones((64, 16), np.float32), "BF16"))
    with pytest.raises(HeadWeightsError, match=r"own_output.weight is \(64, 16\)"):
        load(folder)


def test_a_quantised_trunks_vocabulary_counts_as_the_published_copy(tiny: TinyFactory) -> None:
    folder = tiny(
        "deepseek_v3",
        layout="mlx",
        hidden=64,
        sidecar=SIDE,
        quantize={"bits": 8, "group_size": 32},
    )
    _, binding = bind(folder)
    assert set(binding.dropped) == {"own_embedding.weight", "own_output.weight"}


def add_output(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Put an output head of its own into a sidecar."""
    path = folder / SIDE
    write_tensors(path, {**read_tensors(path), **tensors})


@pytest.mark.parametrize(("family", "at"), SIDECARS)
def test_an_output_head_of_a_sidecar_is_bound(
    tiny: TinyFactory, family: FamilyName, at: str
) -> None:
    folder = tiny(family, sidecar=SIDE)
    own = np.random.default_rng(5).normal(size=(64, 32)).astype(np.float32)
    add_output(folder, {f"{at}lm_head.weight": encode(own, "F32")})
    head = load(folder).head
    assert head is not None
    np.testing.assert_array_equal(parameters(head.module)["own_output.weight"], own)


@pytest.mark.parametrize(("family", "at"), SIDECARS)
def test_a_quantised_output_head_of_a_sidecar_is_bound(
    tiny: TinyFactory, family: FamilyName, at: str
) -> None:
    folder = tiny(
        family, layout="mlx", hidden=64, sidecar=SIDE, quantize={"bits": 4, "group_size": 32}
    )
    own = mx.random.normal((64, 64), key=mx.random.key(2))
    parts = mx.quantize(own, group_size=32, bits=8)
    names = [f"{at}lm_head.{part}" for part in ("weight", "scales", "biases")]
    add_output(folder, {name: from_mlx(part) for name, part in zip(names, parts, strict=True)})
    head = load(folder).head
    assert head is not None
    expected = np.array(mx.dequantize(*parts, group_size=32, bits=8))
    np.testing.assert_array_equal(parameters(head.module)["own_output.weight"], expected)
