"""Every tensor of a head is bound, dropped for a stated reason, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mtplx.contracts.errors import HeadWeightsError, MTPLXError
from mtplx.runtime.loading.folder import load
from tests.support import disk as damage
from tests.support.tensorfile import encode, read_tensors, write_tensors
from tests.support.tiny_families import NEXTN, QWEN, FamilyName
from tests.unit.loading.reading import bind, disk, head_logits, parameters, trunk_logits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.conftest import TinyFactory

FIRST: dict[FamilyName, str] = {
    **dict.fromkeys(QWEN, "mtp."),
    **dict.fromkeys(NEXTN, "model.layers.2."),
    "mimo": "model.mtp_layers.0.",
}
WITH_HEAD: tuple[FamilyName, ...] = tuple(FIRST)
PUBLISHED = {
    "projection": ("fc", "eh_proj", "input_proj"),
    "embedding_norm": ("pre_fc_norm_embedding", "enorm", "token_layernorm"),
    "hidden_norm": ("pre_fc_norm_hidden", "hnorm", "hidden_layernorm"),
    "output_norm": ("norm", "shared_head.norm", "final_layernorm"),
}


def published(family: FamilyName, stored: dict[str, NDArray[Any]], parameter: str) -> Any:
    """The stored values that a parameter of the head should have."""
    at = FIRST[family]
    stem, leaf = parameter.rsplit(".", 1)
    if stem in PUBLISHED:
        names = [f"{at}{name}.{leaf}" for name in PUBLISHED[stem]]
        (value,) = (stored[name] for name in names if name in stored)
    else:
        at += "layers.0." if family in QWEN else ""
        rest = parameter.removeprefix("block.")
        if ".switch_mlp." in rest:
            experts = [f"{at}{rest.replace('switch_mlp', f'experts.{e}')}" for e in range(4)]
            value = np.stack([stored[name] for name in experts])
        else:
            value = stored[at + rest]
    is_shifted = family in QWEN and stem.endswith("norm")
    return value + 1 if is_shifted else value


@pytest.mark.parametrize("family", WITH_HEAD)
def test_every_parameter_of_the_head_is_the_stored_one(
    shared_tiny: TinyFactory, family: FamilyName
) -> None:
    folder = shared_tiny(family)
    head = load(folder).head
    assert head is not None
    stored, loaded = disk(folder), parameters(head.module)
    absorbed = ("embed_q", "unembed_out")
    for name, value in loaded.items():
        if not any(part in name for part in absorbed):
            np.testing.assert_array_equal(value, published(family, stored, name), err_msg=name)
    assert any("self_attn.o_proj" in name for name in loaded)
    assert any("mlp" in name for name in loaded)


@pytest.mark.parametrize("family", WITH_HEAD)
def test_the_account_of_the_tensors_is_complete(
    shared_tiny: TinyFactory, family: FamilyName
) -> None:
    folder = shared_tiny(family)
    module, binding = bind(folder)
    assert binding.bound == len(parameters(module))
    copies = {"own_embedding.weight", "own_output.weight"} if family in NEXTN else set()
    assert set(binding.dropped) == copies
    assert all("copy" in reason for reason in binding.dropped.values())


@pytest.mark.parametrize("family", WITH_HEAD)
def test_a_missing_tensor_is_named(tiny: TinyFactory, family: FamilyName) -> None:
    folder = tiny(family)
    removed = damage.remove_tensors(
        folder, lambda n: n.startswith(FIRST[family]) and "self_attn.o_proj" in n
    )
    assert len(removed) == 1
    with pytest.raises(HeadWeightsError, match=r"self_attn\.o_proj") as caught:
        load(folder)
    assert caught.value.exit_code == 4
    assert caught.value.hint


@pytest.mark.parametrize("family", [*QWEN[1:], *NEXTN])
def test_a_missing_expert_is_named(tiny: TinyFactory, family: FamilyName) -> None:
    folder = tiny(family)
    damage.remove_tensors(
        folder, lambda n: n.startswith(FIRST[family]) and "experts.2.up_proj" in n
    )
    with pytest.raises(MTPLXError, match=r"up_proj.*experts \[2\]") as caught:
        load(folder)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("family", WITH_HEAD)
def test_an_unknown_tensor_is_refused_by_name(tiny: TinyFactory, family: FamilyName) -> None:
    folder = tiny(family)
    path, _ = damage.find_tensor(folder, f"^{FIRST[family]}")
    extra = f"{FIRST[family]}rotary_gate.weight"
    tensors = read_tensors(path)
    write_tensors(path, {**tensors, extra: encode(np.ones((4, 4), np.float32), "BF16")})
    damage.edit_weight_map(folder, lambda names: {**names, extra: path.name})
    with pytest.raises(HeadWeightsError, match="rotary_gate"):
        load(folder)


@pytest.mark.parametrize("family", WITH_HEAD)
def test_a_wrong_shape_is_told_with_the_expected_one(tiny: TinyFactory, family: FamilyName) -> None:
    folder = tiny(family)
    path, name = damage.find_tensor(folder, f"^{FIRST[family]}.*post_attention_layernorm")
    damage.replace_tensor(path, name, encode(np.ones(48, np.float32), "BF16"))
    with pytest.raises(HeadWeightsError, match=r"\(48,\), expected \(32,\)"):
        load(folder)


def test_two_names_for_one_parameter_are_refused(tiny: TinyFactory) -> None:
    folder = tiny("deepseek_v3", single_file=True)
    path = folder / "model.safetensors"
    tensors = read_tensors(path)
    tensors["model.layers.2.final_layernorm.weight"] = tensors["model.layers.2.enorm.weight"]
    write_tensors(path, tensors)
    with pytest.raises(HeadWeightsError, match="final_layernorm"):
        load(folder)


def test_the_other_spelling_of_the_output_norm_is_read(tiny: TinyFactory) -> None:
    folder = tiny("glm4_moe", single_file=True)
    expected = head_logits(load(folder))
    path = folder / "model.safetensors"
    renamed = {
        name.replace("2.shared_head.norm", "2.final_layernorm"): tensor
        for name, tensor in read_tensors(path).items()
    }
    write_tensors(path, renamed)
    np.testing.assert_array_equal(head_logits(load(folder)), expected)


@pytest.mark.parametrize("family", ["deepseek_v3", "mimo"])
def test_further_mtp_layers_are_dropped_and_reported(tiny: TinyFactory, family: FamilyName) -> None:
    two, one = tiny(family, heads=2), tiny(family)
    _, binding = bind(two)
    assert binding.dropped
    assert sum("first MTP layer" in reason for reason in binding.dropped.values()) > 5
    model = load(two)
    assert any("2 MTP layers" in warning for warning in model.warnings)
    np.testing.assert_array_equal(head_logits(model), head_logits(load(one)))


@pytest.mark.parametrize("family", WITH_HEAD)
def test_a_head_that_is_not_wanted_stays_on_disk(
    shared_tiny: TinyFactory, family: FamilyName
) -> None:
    folder = shared_tiny(family)
    with_head, without = load(folder), load(folder, mtp=False)
    assert with_head.has_head
    assert not without.has_head
    assert without.max_depth == 0
    np.testing.assert_array_equal(trunk_logits(with_head), trunk_logits(without))


@pytest.mark.parametrize("family", ["qwen3_5", "deepseek_v3", "glm4_moe", "mimo"])
def test_a_head_nobody_announced_is_used(shared_tiny: TinyFactory, family: FamilyName) -> None:
    model = load(shared_tiny(family, declared=False))
    assert model.has_head
    assert model.inspection.head.state == "undeclared+present"
    assert model.generate([1, 2, 3], max_tokens=8, depth=2).generation_mode == "mtp"
