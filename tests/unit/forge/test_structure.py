"""Whole and damaged checkpoints, told apart from their headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes, load_config

from mtplx.contracts.errors import CorruptModelError, HeadWeightsError, MTPLXError
from mtplx.contracts.families import find_family
from mtplx.contracts.inspection import inspect_folder
from mtplx.forge.expected import expected_trunk
from mtplx.forge.parameters import read_parts
from mtplx.forge.structure import check_structure
from tests.support import disk
from tests.support.checkpoints import TRAINED, require_checkpoint
from tests.support.tensorfile import Tensor, read_tensors, write_tensors
from tests.support.tiny_families import FAMILY_NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory
    from tests.support.checkpoints import TrainedName
    from tests.support.tiny_families import FamilyName

WITH_HEADS = [name for name in FAMILY_NAMES if name != "llama"]


def check(folder: Path) -> None:
    inspection = inspect_folder(folder)
    assert inspection.error is None
    check_structure(inspection, read_parts(inspection))


def fault(folder: Path) -> str:
    """What inspection or the check of the structure says of a damaged folder."""
    with pytest.raises(MTPLXError) as caught:
        check(folder)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize("name", TRAINED)
def test_trained_checkpoints_are_whole(name: TrainedName) -> None:
    check(require_checkpoint(name))


@pytest.mark.parametrize("family", WITH_HEADS)
@pytest.mark.parametrize(
    "options",
    [
        {"layers": 4},
        {"heads": 2},
        {"layout": "mlx"},
        {"layout": "mlx", "hidden": 64, "quantize": {"bits": 4, "group_size": 32}},
        {"sidecar": "mtp/head.safetensors", "fused_experts": True},
        {"hidden": 128, "vocab": 128, "fp8": True},
        *({"hidden": 64, "pack": pack} for pack in ("awq", "gptq", "compressed")),
    ],
    ids=str,
)
def test_every_published_layout_is_whole(
    shared_tiny: TinyFactory, family: FamilyName, options: dict[str, Any]
) -> None:
    check(shared_tiny(family, **options))


@pytest.mark.parametrize(
    ("family", "overrides"),
    [
        *((family, {}) for family in WITH_HEADS),
        ("deepseek_v3", {"q_lora_rank": None, "n_shared_experts": None}),
        ("deepseek_v3", {"moe_layer_freq": 2, "first_k_dense_replace": 0, "attention_bias": True}),
        ("glm4_moe", {"use_qk_norm": False, "attention_bias": False}),
        ("qwen3_next", {"mlp_only_layers": [1], "decoder_sparse_step": 2, "attention_bias": True}),
        ("qwen3_next", {"tie_word_embeddings": True}),
        ("mimo", {"tie_word_embeddings": True, "attention_bias": False}),
        ("qwen3_5", {"text_config.tie_word_embeddings": True, "text_config.head_dim": None}),
    ],
)
def test_expected_parameters_are_those_of_mlx_lm(
    tiny: TinyFactory, family: FamilyName, overrides: dict[str, Any]
) -> None:
    folder = tiny(family, layers=4, head=False)
    disk.edit_json(folder / "config.json", overrides)
    config = load_config(folder)
    found = find_family(config)
    assert found is not None
    expected = expected_trunk(found, config)
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(load_config(folder)))
    parameters = dict(tree_flatten(model.parameters()))
    assert expected.keys() == parameters.keys()
    for name, shape in expected.items():
        known = [(want, got) for want, got in zip(shape, parameters[name].shape, strict=True)]
        assert all(want in (None, got) for want, got in known), name


@pytest.mark.parametrize("family", WITH_HEADS)
def test_every_missing_tensor_is_seen(tiny: TinyFactory, family: FamilyName) -> None:
    whole = tiny(family)
    names = [name for path in disk.shard_files(whole) for name in read_tensors(path)]
    optional = ("shared_head.head.weight", "layers.2.embed_tokens.weight")
    for name in names:
        if name.endswith(optional):
            continue
        folder = tiny(family)
        disk.remove_tensors(folder, name.__eq__)
        inspection = inspect_folder(folder)
        if inspection.error is not None or not inspection.head.found:
            continue
        with pytest.raises(CorruptModelError):
            check_structure(inspection, read_parts(inspection))


def test_a_gap_between_experts_is_named(tiny: TinyFactory) -> None:
    folder = tiny("glm4_moe")
    disk.remove_tensors(folder, lambda n: "layers.1.mlp.experts.2.up_proj" in n)
    assert "up_proj.weight of experts 2 is missing" in fault(folder)


def test_missing_last_experts_are_seen(tiny: TinyFactory) -> None:
    folder = tiny("deepseek_v3")
    disk.remove_tensors(folder, lambda n: "layers.1.mlp.experts.3." in n)
    text = fault(folder)
    assert "model.layers.1.mlp.switch_mlp.up_proj.weight [3, 32, 32]" in text
    assert "expected [4, 32, 32]" in text


@pytest.mark.parametrize(
    ("family", "pattern", "shape"),
    [
        ("mimo", r"input_proj\.weight", (32, 32)),
        ("qwen3_5", r"mtp\.fc\.weight", (64, 32)),
        ("glm4_moe", r"layers\.2\.enorm\.weight", (16,)),
        ("deepseek_v3", r"layers\.2\.shared_head\.norm\.weight", (1, 32)),
    ],
)
def test_a_head_of_another_size_is_refused(
    tiny: TinyFactory, family: FamilyName, pattern: str, shape: tuple[int, ...]
) -> None:
    folder = tiny(family)
    path, name = disk.find_tensor(folder, pattern)
    size = 2
    for dim in shape:
        size *= dim
    disk.replace_tensor(path, name, Tensor("BF16", shape, bytes(size)))
    inspection = inspect_folder(folder)
    with pytest.raises(HeadWeightsError, match=r"another shape than config\.json"):
        check_structure(inspection, read_parts(inspection))


def test_a_config_of_another_size_is_refused(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    disk.edit_json(folder / "config.json", {"hidden_size": 64, "num_attention_heads": 4})
    assert "model.embed_tokens.weight [64, 32] (expected [64, 64])" in fault(folder)


def test_a_tensor_without_a_place_is_named(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    path = disk.shard_files(folder)[0]
    taken = read_tensors(path)
    extra = {**taken, "model.layers.0.mlp.extra.weight": Tensor("BF16", (2,), bytes(4))}

    write_tensors(path, extra)
    assert "model.layers.0.mlp.extra.weight" in fault(folder)


def test_tables_of_rotary_frequencies_and_tied_copies_are_no_strangers(tiny: TinyFactory) -> None:

    folder = tiny("mimo")
    disk.edit_json(folder / "config.json", {"tie_word_embeddings": True})
    path = disk.shard_files(folder)[0]
    inv = {"model.layers.0.self_attn.rotary_emb.inv_freq": Tensor("F32", (8,), bytes(32))}
    write_tensors(path, {**read_tensors(path), **inv})
    check(folder)
