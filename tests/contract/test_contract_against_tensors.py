"""A contract that describes another head than the one in the folder stops the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.arch_ids import ARCH_IDS
from mtplx.contracts.errors import CorruptModelError, MTPLXError, UnsupportedModelError
from mtplx.contracts.families import FAMILIES
from mtplx.contracts.inspection import Tier, inspect_folder
from tests.support.contracts import verified_contract, write_verified
from tests.support.header_models import (
    blank,
    config_of,
    mimo_head_names,
    nextn_names,
    qwen_head_names,
    trunk_names,
    write_model,
)
from tests.support.tensorfile import Tensor

if TYPE_CHECKING:
    from pathlib import Path

EIGHT_BITS = {"bits": 8, "group_size": 32, "mode": "affine"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path, config_of("mimo"), [*trunk_names(2), *mimo_head_names()])


def packed(name: str, *, words: int = 16, groups: int = 2) -> dict[str, Tensor]:
    """A matrix of 3 rows: 16 words of 8-bit values are 64 inputs, 2 groups of 32."""
    return {
        f"{name}.weight": Tensor("U32", (3, words), bytes(12 * words)),
        f"{name}.scales": Tensor("BF16", (3, groups), bytes(6 * groups)),
        f"{name}.biases": Tensor("BF16", (3, groups), bytes(6 * groups)),
    }


def with_packed_projection(folder: Path, **shape: int) -> Path:
    """The MiMo model with a packed input projection in its head."""
    names = [*trunk_names(2), *mimo_head_names()]
    tensors = {**blank(*names), **packed("model.mtp_layers.0.input_proj", **shape)}
    return write_model(folder, config_of("mimo"), tensors)


def refuse(folder: Path, error: type[MTPLXError], *named: str, **changes: Any) -> None:
    """With these changes of a matching contract the folder is refused, both values named."""
    head = {**verified_contract(folder)["head"], **changes.pop("head", {})}
    found = inspect_folder(write_verified(folder, head=head, **changes))
    assert type(found.error) is error
    assert found.tier is (Tier.CORRUPT if error is CorruptModelError else Tier.INCOMPATIBLE)
    for text in named:
        assert text in found.error.message
    assert found.error.hint


@pytest.mark.parametrize(
    ("model_type", "names"),
    [
        ("mimo", mimo_head_names()),
        ("qwen3_next", qwen_head_names()),
        ("qwen3_5_text", qwen_head_names()),
        ("deepseek_v3", nextn_names(2)),
        ("glm4_moe", nextn_names(2)),
    ],
)
def test_contract_that_agrees_is_verified(
    tmp_path: Path, model_type: str, names: list[str]
) -> None:
    write_model(tmp_path, config_of(model_type), [*trunk_names(2), *names])
    assert inspect_folder(write_verified(tmp_path)).tier is Tier.VERIFIED


@pytest.mark.parametrize(
    ("head", "error", "named"),
    [
        ({"layout": "qwen"}, UnsupportedModelError, ("'qwen'", "'mimo'")),
        ({"mtp_layers": 3}, CorruptModelError, ("3 MTP layers", "hold 1")),
        ({"prefix": "mtp."}, CorruptModelError, ("'mtp.'", "'model.mtp_layers.'")),
        ({"norm_encoding": "delta"}, CorruptModelError, ("'delta'", "'absolute'")),
        ({"layer_per_depth": True}, UnsupportedModelError, ("layer_per_depth", "first layer")),
        ({"own_embedding": True}, CorruptModelError, ("own_embedding true", "embed_tokens")),
        ({"own_output": True}, CorruptModelError, ("own_output true", "lm_head")),
        (
            {"quantization": {"0.input_proj": EIGHT_BITS}},
            CorruptModelError,
            ("0.input_proj", "no scales"),
        ),
    ],
)
def test_head_that_is_not_the_recorded_one(
    folder: Path, head: dict[str, Any], error: type[MTPLXError], named: tuple[str, ...]
) -> None:
    refuse(folder, error, *named, head=head)


def test_recorded_prefix_and_fewer_layers_than_found_agree(tmp_path: Path) -> None:
    names = [*mimo_head_names(), *(n.replace(".0.", ".1.") for n in mimo_head_names())]
    folder = write_model(tmp_path, config_of("mimo"), [*trunk_names(2), *names])
    head = {**verified_contract(folder)["head"], "mtp_layers": 1, "prefix": "model.mtp_layers."}
    assert inspect_folder(write_verified(folder, head=head)).tier is Tier.VERIFIED


def test_quantisation_that_agrees(tmp_path: Path) -> None:
    folder = with_packed_projection(tmp_path)
    head = {
        **verified_contract(folder)["head"],
        "quantization": {"0.input_proj": EIGHT_BITS},
    }
    assert inspect_folder(write_verified(folder, head=head)).tier is Tier.VERIFIED


def test_packed_head_without_a_word_in_the_contract(tmp_path: Path) -> None:
    refuse(with_packed_projection(tmp_path), CorruptModelError, "0.input_proj", "no quantisation")


@pytest.mark.parametrize("change", [{"bits": 4}, {"group_size": 64}, {"bits": 4, "group_size": 32}])
def test_packing_that_the_shapes_contradict(tmp_path: Path, change: dict[str, int]) -> None:
    spec = {**EIGHT_BITS, **change}
    refuse(
        with_packed_projection(tmp_path),
        CorruptModelError,
        f"{spec['bits']} bits",
        "[3, 16]",
        head={"quantization": {"0.input_proj": spec}},
    )


def test_own_output_that_the_contract_does_not_mention(tmp_path: Path) -> None:
    names = [*trunk_names(2), *nextn_names(2), "model.layers.2.shared_head.head.weight"]
    folder = write_model(tmp_path, config_of("glm4_moe"), names)
    refuse(folder, CorruptModelError, "own_output false", "shared_head.head")
    head = {**verified_contract(folder)["head"], "own_output": True}
    assert inspect_folder(write_verified(folder, head=head)).tier is Tier.VERIFIED


def test_recorded_head_of_a_model_without_one(tmp_path: Path) -> None:
    folder = write_model(tmp_path, config_of("mimo"), trunk_names(2))
    refuse(folder, CorruptModelError, "1 MTP layer", "hold none")


@pytest.mark.parametrize("depth", [0, None])
def test_head_that_may_not_draft(folder: Path, depth: int | None) -> None:
    refuse(folder, CorruptModelError, f"mtp_depth_max {depth}", mtp_depth_max=depth)


@pytest.mark.parametrize("arch", ["mimo", "qwen3-next-mtp", "never-heard-of"])
def test_contract_for_another_architecture(folder: Path, arch: str) -> None:
    refuse(folder, UnsupportedModelError, f"'{arch}'", "mimo-mtp", arch_id=arch)


@pytest.mark.parametrize(
    ("arch", "is_refused"), [("mimo-mtp", False), ("qwen3-next-mtp", True), ("new-mtp", False)]
)
def test_public_contract_may_name_what_mtplx_does_not_know(
    folder: Path, arch: str, is_refused: bool
) -> None:
    public = write_verified(folder, schema_version=None, head=None, content=None, arch_id=arch)
    found = inspect_folder(public)
    assert isinstance(found.error, UnsupportedModelError) is is_refused


@pytest.mark.parametrize(
    "change",
    [
        {"base_hidden_variant": "pre_norm"},
        {"hidden_variant": "pre_norm"},
        {"concat_order": "embedding_hidden"},
    ],
)
def test_two_wirings_in_one_contract_must_agree(folder: Path, change: dict[str, str]) -> None:
    public = {
        "base_hidden_variant": "post_norm",
        "hidden_variant": "post_norm",
        "concat_order": "hidden_embedding",
    }
    same = inspect_folder(write_verified(folder, mtp_contract=public))
    assert same.tier is Tier.VERIFIED
    refuse(folder, CorruptModelError, "mtp_contract", mtp_contract={**public, **change})


def test_architecture_ids_belong_to_families() -> None:
    assert set(ARCH_IDS) <= {family.name for family in FAMILIES}
    assert {family.name for family in FAMILIES if family.runnable} <= set(ARCH_IDS)
