"""The registry of families, and where their heads are found."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mtplx.contracts.errors import CorruptModelError
from mtplx.contracts.families import (
    FAMILIES,
    Family,
    HeadTensors,
    declared_heads,
    find_family,
    find_head,
    num_trunk_layers,
    text_config,
    unknown_mtp_keys,
)
from tests.support.header_models import (
    config_of,
    mimo_head_names,
    nextn_names,
    qwen_head_names,
    trunk_names,
)


def family(name: str) -> Family:
    return next(f for f in FAMILIES if f.name == name)


def head(name: str, layers: int, names: list[str]) -> HeadTensors:
    found = find_head(family(name), config_of(name, layers), names)
    assert found is not None
    return found


def test_names_types_and_architectures_belong_to_one_family() -> None:
    for values in (
        [f.name for f in FAMILIES],
        [t for f in FAMILIES for t in f.model_types],
        [a for f in FAMILIES for a in f.architectures],
    ):
        assert len(set(values)) == len(values)


def test_five_families_are_runnable() -> None:
    runnable = {f.name for f in FAMILIES if f.runnable}
    assert runnable == {"qwen3_next", "qwen3_5", "deepseek_v3", "glm4_moe", "mimo"}


@pytest.mark.parametrize("known", FAMILIES, ids=lambda f: f.name)
def test_rows_do_not_contradict_themselves(known: Family) -> None:
    assert not (known.ar_only and known.runnable)
    assert known.ar_only == (known.layout == "none")
    assert known.has_trunk or not known.runnable
    assert bool(known.essential) == known.runnable


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3_5"},
        {"model_type": "qwen3_5_moe"},
        {"model_type": "qwen3_5_moe_text"},
        {"model_type": "wrapper", "text_config": {"model_type": "qwen3_5_text"}},
        {"architectures": ["Other", "Qwen3_5ForConditionalGeneration"]},
        {"model_type": "wrapper", "architectures": "Qwen3_5MoeForConditionalGeneration"},
    ],
)
def test_family_by_type_then_text_type_then_architecture(config: dict[str, Any]) -> None:
    assert find_family(config) is family("qwen3_5")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "mystery"},
        {"model_type": None},
        {"model_type": ["mimo"]},
        {"model_type": "MIMO"},
        {"architectures": 3},
        {"architectures": [{}]},
        {"text_config": "mimo"},
        {"_name_or_path": "XiaomiMiMo/MiMo-7B", "name": "mimo"},
    ],
)
def test_nothing_else_makes_a_family(config: dict[str, Any]) -> None:
    assert find_family(config) is None


def test_text_part_of_a_wrapper() -> None:
    assert text_config({"text_config": {"a": 1}, "b": 2}) == {"a": 1}
    assert text_config({"b": 2}) == {"b": 2}


def test_layers_are_those_of_the_text_model() -> None:
    config = {"num_hidden_layers": 3, "text_config": {"num_hidden_layers": 9}}
    assert num_trunk_layers(config) == 9
    assert num_trunk_layers({"num_layers": 28}) == 28


@pytest.mark.parametrize("value", [0, -1, "4", 4.0, None, True, [4]])
def test_layer_count_must_be_a_positive_integer(value: object) -> None:
    with pytest.raises(CorruptModelError, match="num_hidden_layers"):
        num_trunk_layers({"num_hidden_layers": value})


@pytest.mark.parametrize(
    ("name", "config", "declared"),
    [
        ("deepseek_v3", {"num_nextn_predict_layers": 1}, 1),
        ("deepseek_v3", {"num_nextn_predict_layers": 0}, 0),
        ("deepseek_v3", {}, None),
        ("deepseek_v3", {"num_mtp_layers": 2}, 2),
        ("qwen3_5", {"text_config": {"mtp_num_hidden_layers": 1}}, 1),
        ("qwen3_5", {"mtp_num_hidden_layers": 1}, 1),
        ("qwen3_next", {"num_nextn_predict_layers": 1}, 1),
        ("nemotron_h", {"mtp_layers_block_type": ["*"]}, 1),
        ("nemotron_h", {"mtp_hybrid_override_pattern": "*E"}, 1),
        ("nemotron_h", {"mtp_layers_block_type": []}, None),
        ("mimo", {"num_nextn_predict_layers": "1"}, None),
        ("mimo", {"num_nextn_predict_layers": True}, None),
        ("mimo", {"num_nextn_predict_layers": -1}, None),
    ],
)
def test_announced_heads_under_every_spelling(
    name: str, config: dict[str, Any], declared: int | None
) -> None:
    assert declared_heads(config, family(name)) == declared


def test_config_keys_that_speak_of_mtp_unknowingly_are_listed() -> None:
    config = {
        "num_nextn_predict_layers": "one",
        "mtp_magic": 3,
        "text_config": {"nextn_style": "x", "mtp_num_hidden_layers": 1},
        "hidden_size": 4,
    }
    assert unknown_mtp_keys(config) == (
        "num_nextn_predict_layers",
        "mtp_magic",
        "text_config.nextn_style",
    )


@pytest.mark.parametrize("layers", [2, 61, 78])
@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model."])
def test_head_right_behind_the_trunk(layers: int, prefix: str) -> None:
    names = trunk_names(layers, prefix) + nextn_names(layers, prefix)
    found = head("deepseek_v3", layers, names)
    assert found.prefix == f"{prefix}layers.{layers}."
    parts = [name.removeprefix("layers.0.") for name in nextn_names(0, prefix="")]
    assert found.names == {f"{prefix}layers.{layers}.{part}": f"0.{part}" for part in parts}
    assert found.num_layers == 1


@pytest.mark.parametrize("other", [610, 611, 62, 6100])
def test_layer_number_is_compared_as_a_number(other: int) -> None:
    names = trunk_names(61) + nextn_names(other)
    assert find_head(family("deepseek_v3"), config_of("deepseek_v3", 61), names) is None
    found = head("deepseek_v3", 61, names + nextn_names(61))
    assert all(int(re.findall(r"\d+", name)[0]) < 63 for name in found.names)
    assert found.num_layers == (2 if other == 62 else 1)


def test_several_layers_behind_the_trunk_are_numbered_from_zero() -> None:
    found = head("glm4_moe", 4, trunk_names(4) + nextn_names(4) + nextn_names(5))
    assert found.num_layers == 2
    assert found.names["model.layers.5.eh_proj.weight"] == "1.eh_proj.weight"
    assert found.prefix == "model.layers.4."


@pytest.mark.parametrize(
    "prefix",
    [
        "mtp.",
        "language_model.mtp.",
        "model.mtp.",
        "model.language_model.mtp.",
        "language_model.model.mtp.",
    ],
)
def test_qwen_head_under_every_prefix(prefix: str) -> None:
    found = head("qwen3_5", 2, trunk_names(2) + qwen_head_names(prefix))
    assert found.prefix == prefix
    assert found.num_layers == 1
    assert found.names[f"{prefix}layers.0.self_attn.q_proj.weight"] == (
        "layers.0.self_attn.q_proj.weight"
    )
    assert found.names[f"{prefix}fc.weight"] == "fc.weight"


def test_stacked_experts_without_a_suffix_are_part_of_the_head() -> None:
    stacked = "mtp.layers.0.mlp.experts.gate_up_proj"
    found = head("qwen3_5", 2, [*trunk_names(2), *qwen_head_names(), stacked])
    assert found.names[stacked] == "layers.0.mlp.experts.gate_up_proj"


@pytest.mark.parametrize(
    "prefix", ["model.mtp_layers.", "mtp_layers.", "language_model.model.mtp_layers."]
)
def test_mimo_head_under_every_prefix(prefix: str) -> None:
    found = head("mimo", 2, trunk_names(2) + mimo_head_names(prefix))
    assert found.prefix == prefix
    assert found.names[f"{prefix}0.input_proj.weight"] == "0.input_proj.weight"


@pytest.mark.parametrize(
    ("name", "relative"),
    [
        ("mtp.layers.0.eh_proj.weight", "0.eh_proj.weight"),
        ("mtp.0.eh_proj.weight", "0.eh_proj.weight"),
        ("mtp.eh_proj.weight", "0.eh_proj.weight"),
        ("mtp.layer.self_attn.q_proj.weight", "0.self_attn.q_proj.weight"),
        ("language_model.mtp.layers.1.enorm.weight", "1.enorm.weight"),
    ],
)
def test_repacked_numbered_heads(name: str, relative: str) -> None:
    assert head("glm4_moe", 2, [*trunk_names(2), name]).names == {name: relative}


def test_published_place_wins_over_a_repacked_copy() -> None:
    names = [*trunk_names(2), *nextn_names(2), "mtp.0.eh_proj.weight"]
    assert head("glm4_moe", 2, names).prefix == "model.layers.2."


@pytest.mark.parametrize(
    ("name", "tensor", "relative"),
    [
        ("mimo_v2_flash", "model.mtp.layers.2.eh_proj.weight", "2.eh_proj.weight"),
        ("nemotron_h", "mtp.layers.1.mixer.gate.weight", "layers.1.mixer.gate.weight"),
        ("ernie4_5_moe", "model.mtp_linear_proj.0.weight", "mtp_linear_proj.0.weight"),
        ("ernie4_5_moe", "model.mtp_block.0.mlp.up_proj.weight", "mtp_block.0.mlp.up_proj.weight"),
        ("longcat_flash", "model.mtp.layers.0.enorm.m.weight", "layers.0.enorm.m.weight"),
        ("step3p5", "model.layers.45.eh_proj.weight", "0.eh_proj.weight"),
    ],
)
def test_heads_without_a_backend_are_found_too(name: str, tensor: str, relative: str) -> None:
    assert head(name, 45, [tensor]).names == {tensor: relative}


def test_nemotron_stores_one_layer_as_two_blocks() -> None:
    names = ["mtp.layers.0.eh_proj.weight", "mtp.layers.1.final_layernorm.weight"]
    assert head("nemotron_h", 2, names).num_layers == 1


@pytest.mark.parametrize("name", ["llama", "gemma4_assistant"])
def test_families_without_a_head_in_the_checkpoint(name: str) -> None:
    names = [*trunk_names(2), *qwen_head_names(), *nextn_names(2)]
    assert find_head(family(name), config_of(name), names) is None


def test_defaults_follow_the_published_reference() -> None:
    assert family("mimo").wiring.concat == "hidden_embedding"
    assert family("step3p5").wiring.feed == "pre"
    assert family("kimi_k3").wiring.recycle == "pre"
    for name in ("qwen3_next", "qwen3_5", "deepseek_v3", "glm4_moe"):
        wiring = family(name).wiring
        assert (wiring.feed, wiring.recycle, wiring.concat) == ("post", "post", "embedding_hidden")
    zero_centred = {f.name for f in FAMILIES if f.zero_centred_norms}
    assert zero_centred == {"qwen3_next", "qwen3_5", "qwen3_5_mtp", "step3p5", "step3p7"}
