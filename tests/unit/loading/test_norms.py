"""The norm convention of a head: decided once, from provenance or from its q/k norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from mtplx.contracts.errors import HeadWeightsError
from mtplx.runtime.loading.folder import load
from mtplx.runtime.loading.norms import norm_names, shift_norms, stored_as_delta
from tests.support import disk as damage
from tests.support.tensorfile import decode, encode, read_tensors
from tests.support.tiny_families import QWEN, FamilyName
from tests.support.tiny_layout import LEFT_RAW_WHEN_MIXED
from tests.unit.loading.reading import bind, parameters

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

SIDE = "mtp.safetensors"


def head_parameters(folder: Path) -> dict[str, Any]:
    head = load(folder).head
    assert head is not None
    return parameters(head.module)


@pytest.mark.parametrize("family", QWEN)
@pytest.mark.parametrize("layout", ["hf", "mlx"])
def test_raw_and_final_sidecars_load_to_the_same_head(
    tiny: TinyFactory, family: FamilyName, layout: str
) -> None:
    raw, final = (
        head_parameters(tiny(family, layout=layout, sidecar=SIDE, norm_convention=convention))
        for convention in ("raw", "final")
    )
    assert raw.keys() == final.keys()
    for name in raw:
        np.testing.assert_array_equal(raw[name], final[name], err_msg=name)


@pytest.mark.parametrize("family", QWEN)
@pytest.mark.parametrize(("convention", "found"), [("raw", "delta"), ("final", "absolute")])
def test_a_decision_by_values_is_said(
    tiny: TinyFactory, family: FamilyName, convention: str, found: str
) -> None:
    folder = tiny(family, layout="mlx", sidecar=SIDE, norm_convention=convention)
    module, binding = bind(folder)
    assert binding.norm_encoding == found
    assert any("norm convention" in note for note in binding.notes)
    assert 0.9 < parameters(module)["output_norm.weight"].mean() < 1.1


@pytest.mark.parametrize("family", QWEN)
def test_every_kind_of_norm_is_shifted(shared_tiny: TinyFactory, family: FamilyName) -> None:
    folder = shared_tiny(family)
    stored = {n: v for p in damage.shard_files(folder) for n, v in read_tensors(p).items()}
    loaded = head_parameters(folder)
    places = {
        "embedding_norm": "pre_fc_norm_embedding",
        "hidden_norm": "pre_fc_norm_hidden",
        "output_norm": "norm",
        "block.input_layernorm": "layers.0.input_layernorm",
        "block.post_attention_layernorm": "layers.0.post_attention_layernorm",
        "block.self_attn.q_norm": "layers.0.self_attn.q_norm",
        "block.self_attn.k_norm": "layers.0.self_attn.k_norm",
    }
    assert {n for n in loaded if n.endswith("norm.weight")} == {f"{p}.weight" for p in places}
    for parameter, name in places.items():
        gain = decode(stored[f"mtp.{name}.weight"]) + 1
        np.testing.assert_array_equal(loaded[f"{parameter}.weight"], gain, err_msg=name)


@pytest.mark.parametrize("family", QWEN)
def test_a_mix_of_conventions_is_refused_with_the_list(
    tiny: TinyFactory, family: FamilyName
) -> None:
    folder = tiny(family, layout="mlx", sidecar=SIDE, norm_convention="mixed")
    with pytest.raises(HeadWeightsError, match="mixes two norm conventions") as caught:
        load(folder)
    assert len(LEFT_RAW_WHEN_MIXED) == 2
    for parameter in ("embedding_norm", "input_layernorm"):
        assert parameter in caught.value.message
    assert "mean -0.4" in caught.value.message
    assert "output_norm" not in caught.value.message


def test_q_and_k_norms_between_the_conventions_are_refused_with_their_means(
    tiny: TinyFactory,
) -> None:
    folder = tiny("qwen3_5", layout="mlx", sidecar=SIDE)
    for name in ("q_norm", "k_norm"):
        path, full = damage.find_tensor(folder, rf"^mtp\..*{name}")
        low = decode(read_tensors(path)[full]) - 0.5
        damage.replace_tensor(path, full, encode(low, "BF16"))
    with pytest.raises(HeadWeightsError, match=r"k_norm.*mean 1\.2") as caught:
        load(folder)
    assert "convert" in caught.value.hint


def test_families_with_plain_norms_are_never_shifted(shared_tiny: TinyFactory) -> None:
    folder = shared_tiny("mimo", layout="mlx")
    _, name = damage.find_tensor(folder, "token_layernorm")
    stored = decode(read_tensors(damage.shard_files(folder)[1])[name])
    np.testing.assert_array_equal(head_parameters(folder)["embedding_norm.weight"], stored)


def test_the_shift_is_added_in_float32() -> None:
    tiny_delta = mx.full((4,), 2.0**-9, dtype=mx.bfloat16)
    shifted = shift_norms({"a.norm.weight": tiny_delta, "a.fc.weight": tiny_delta})
    assert shifted["a.norm.weight"].tolist() == [1 + 2.0**-9] * 4
    assert shifted["a.fc.weight"].tolist() == [2.0**-9] * 4


def test_matrices_are_no_norms() -> None:
    weights = {"q_norm.weight": mx.ones((3,)), "norm.weight": mx.ones((3, 3))}
    assert norm_names(weights) == ["q_norm.weight"]


def test_a_head_without_q_and_k_norms_is_not_guessed() -> None:
    trunk = {"layers.0.self_attn.q_norm.weight": mx.full((4,), 1.74)}
    with pytest.raises(HeadWeightsError, match="no q_norm"):
        stored_as_delta({"output_norm.weight": mx.zeros((4,))}, trunk)
