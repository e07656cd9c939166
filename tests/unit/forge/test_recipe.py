"""Recipes: what they accept, what they refuse by name, and which module gets what."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import InvalidRequestError
from mtplx.forge.recipe import PRESETS, Quantization, Recipe, load_recipe
from mtplx.forge.recipe_text import MAX_RECIPE_BYTES, preset_bytes
from tests.support.checkpoints import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

EIGHT = Quantization(bits=8)
FOUR = Quantization(bits=4)


def recipe(**values: Any) -> Recipe:
    return load_recipe(json.dumps({"body_bits": 4, **values}))


def refused(text: str, key: str, *words: str) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        load_recipe(text)
    assert caught.value.key == key
    for word in words:
        assert word in str(caught.value)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_whole_and_explained(name: str) -> None:
    found = load_recipe(name)
    assert found.name == name
    assert found.description
    assert found.mtp_policy == "keep_bf16"
    assert preset_bytes(name).startswith(b"#")


def test_presets_differ_in_what_they_do() -> None:
    assert len({load_recipe(name).digest() for name in PRESETS}) == len(PRESETS)
    assert [name for name in PRESETS if load_recipe(name).is_lossless] == ["lossless"]


@pytest.mark.parametrize("wrapper", ["", "language_model."])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("model.embed_tokens", EIGHT),
        ("lm_head", EIGHT),
        ("model.layers.3.self_attn.o_proj", EIGHT),
        ("model.layers.2.linear_attn.out_proj", EIGHT),
        ("model.layers.2.mlp.gate", None),
        ("model.layers.2.mlp.shared_expert_gate", None),
        ("model.layers.2.mlp.gate_proj", FOUR),
        ("model.layers.2.mlp.switch_mlp.down_proj", FOUR),
        ("model.layers.2.self_attn.embed_q", FOUR),
        ("model.layers.2.self_attn.unembed_out", FOUR),
    ],
)
def test_selectors_name_the_modules_of_every_family(
    wrapper: str, path: str, expected: Quantization | None
) -> None:
    assert load_recipe("optimized-speed").quantization_for(wrapper + path) == expected


def test_nothing_is_quantised_without_body_bits() -> None:
    lossless = load_recipe("lossless")
    assert lossless.body is None
    assert lossless.quantization_for("model.layers.0.mlp.up_proj") is None


def test_the_most_specific_override_wins_whatever_its_place() -> None:
    overrides = {
        "attention_output": {"bits": 8},
        "*.self_attn.o_proj": {"bits": 6},
        "*.layers.1.self_attn.o_proj": {"bits": 5},
        "model.layers.1.self_attn.o_proj": "keep",
    }
    for items in (list(overrides.items()), list(overrides.items())[::-1]):
        found = recipe(module_overrides=dict(items))
        assert found.quantization_for("language_model.model.layers.1.self_attn.o_proj") is None
        assert found.quantization_for("model.layers.0.self_attn.o_proj") == Quantization(bits=6)
        assert found.quantization_for("model.layers.0.linear_attn.out_proj") == EIGHT
    del overrides["model.layers.1.self_attn.o_proj"]
    found = recipe(module_overrides=overrides)
    assert found.quantization_for("model.layers.1.self_attn.o_proj") == Quantization(bits=5)


def test_equally_specific_patterns_are_decided_by_the_alphabet() -> None:
    for keys in (("*.mlp.up_*", "*.ml?.up_*"), ("*.ml?.up_*", "*.mlp.up_*")):
        found = recipe(module_overrides={keys[0]: {"bits": 8}, keys[1]: {"bits": 8}})
        assert found.quantization_for("model.layers.0.mlp.up_proj") == EIGHT
    same = {"*up_proj": {"bits": 8}, "m*p_proj": {"bits": 6}}
    for items in (same, dict(reversed(same.items()))):
        assert recipe(module_overrides=items).quantization_for("model.up_proj") == EIGHT


def test_rows_that_do_not_divide_into_groups_are_left_alone() -> None:
    found = recipe(module_overrides={"lm_head": {"bits": 8, "group_size": 128}})
    assert found.applied_to("model.layers.0.mlp.up_proj", 192) == FOUR
    assert found.applied_to("model.layers.0.mlp.up_proj", 96) is None
    assert found.applied_to("lm_head", 192) is None
    assert found.applied_to("lm_head", 256) == Quantization(bits=8, group_size=128)
    narrow = recipe(module_overrides={"lm_head": {"bits": 8, "group_size": 32}})
    assert narrow.applied_to("lm_head", 96) is None


def test_overrides_that_match_nothing_are_told() -> None:
    found = recipe(module_overrides={"router": "keep", "*.qkv": "keep", "*.up_proj": {"bits": 8}})
    assert found.unmatched(["model.layers.0.mlp.up_proj"]) == ["*.qkv"]


@pytest.mark.parametrize(("mode", "group"), [("mxfp4", 32), ("nvfp4", 16), ("affine", 64)])
def test_group_size_follows_the_mode(mode: str, group: int) -> None:
    found = recipe(body_mode=mode, module_overrides={"lm_head": {"bits": 4, "mode": mode}})
    assert found.body_group_size == group
    assert found.quantization_for("lm_head") == found.body


def test_digest_is_of_what_is_done_only() -> None:
    plain = recipe()
    assert recipe(name="other", description="words", shard_size_gib=5).digest() == plain.digest()
    assert recipe(body_group_size=32).digest() != plain.digest()


def test_policies_of_the_head() -> None:
    assert recipe().head is None
    assert recipe(mtp_policy="q8").head == EIGHT
    degraded = recipe(mtp_policy="requantize")
    assert degraded.degrades_head
    assert degraded.head == FOUR


@pytest.mark.parametrize(
    ("values", "key", "words"),
    [
        ({"body_bit": 4}, "body_bit", ["'body_bits'", "did you mean"]),
        ({}, "body_bits", ["missing", "null"]),
        ({"body_bits": 7}, "body_bits", ["7", "2, 3, 4, 5, 6, 8"]),
        ({"body_bits": "4"}, "body_bits", ["'4'"]),
        ({"body_bits": True}, "body_bits", ["True"]),
        ({"body_bits": 4, "body_group_size": 48}, "body_group_size", ["48", "32, 64, 128"]),
        ({"body_bits": 8, "body_mode": "mxfp4"}, "body_bits", ["8", "mxfp4"]),
        ({"body_bits": 4, "body_mode": "int4"}, "body_mode", ["'int4'", "affine"]),
        ({"body_bits": 4, "mtp_policy": "q4"}, "mtp_policy", ["'q4'", "keep_bf16"]),
        ({"body_bits": 4, "name": "../x"}, "name", ["../x"]),
        ({"body_bits": 4, "shard_size_gib": 0}, "shard_size_gib", ["0"]),
        ({"body_bits": None, "mtp_policy": "requantize"}, "mtp_policy", ["body_bits is null"]),
        (
            {"body_bits": None, "module_overrides": {"lm_head": {"bits": 8}}},
            "module_overrides",
            ["lm_head", "body_bits is null"],
        ),
        (
            {"body_bits": 4, "module_overrides": {"embedding": "keep"}},
            "module_overrides.embedding",
            ["did you mean 'embeddings'"],
        ),
        (
            {"body_bits": 4, "module_overrides": {"lm_head": {"bit": 8}}},
            "module_overrides.lm_head.bit",
            ["did you mean 'bits'"],
        ),
        (
            {"body_bits": 4, "module_overrides": {"lm_head": {"bits": 9}}},
            "module_overrides.lm_head",
            ["9"],
        ),
        (
            {"body_bits": 4, "module_overrides": {"lm_head": "bf16"}},
            "module_overrides.lm_head",
            ["'keep'", "bf16"],
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(
    values: dict[str, Any], key: str, words: list[str]
) -> None:
    refused(json.dumps(values), key, *words)


def test_yaml_and_json_files_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("body_bits: 4\nmodule_overrides: {router: keep}\n")
    (tmp_path / "my own.json").write_text(
        '{"body_bits": 4, "module_overrides": {"router": "keep"}}'
    )
    ours = load_recipe(str(tmp_path / "mine.yaml"))
    same = load_recipe(str(tmp_path / "my own.json"))
    assert (ours.name, same.name) == ("mine", "my-own")
    assert ours.digest() == same.digest()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("body_bits: 4\nbody_bits: 8\n", "occurs twice"),
        ("body_bits: [", "no valid YAML"),
        ("a: &x 1\nb: *x\n", "aliases"),
        ("body_bits: !!python/object/apply:os.system [true]\n", "no valid YAML"),
        ("- 1\n", "found list"),
        ("", "found NoneType"),
        ("? [a]\n: 1\n", "a key is no text"),
        ("body_bits: 4\n\x00", "no valid YAML"),
        ("[" * 5000, "no valid YAML"),
        ("#" * (MAX_RECIPE_BYTES + 1), "bytes"),
    ],
)
def test_yaml_that_is_no_plain_mapping_is_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    refused(str(path), "recipe", str(path.name), word)


def test_json_with_a_key_twice_is_refused() -> None:
    refused('{"body_bits": 4, "body_bits": 8}', "recipe", "body_bits", "twice")
    refused('{"body_bits": ', "recipe", "JSON")


def test_a_name_that_is_nothing_lists_the_presets(tmp_path: Path) -> None:
    refused("bare-sped", "recipe", "did you mean 'bare-speed'", "lossless")
    refused(str(tmp_path / "none.yaml"), "recipe", "does not exist")
    refused(str(tmp_path), "recipe", "no preset")
    (tmp_path / "folder.yaml").mkdir()
    refused(str(tmp_path / "folder.yaml"), "recipe", "cannot be read")
    refused("a\0.yaml", "recipe", "null byte")


def test_packed_bytes_count_scales_and_biases() -> None:
    assert FOUR.packed_bytes((2, 128)) == 2 * 128 // 2 + 4 * 4
    assert Quantization(bits=4, mode="mxfp4").packed_bytes((2, 128)) == 128 + 8
    assert Quantization(bits=3, group_size=32).packed_bytes((4, 32)) == 48 + 16


def test_examples_of_the_documentation_are_recipes(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "forge-recipes.md").read_text()
    examples = re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", text, re.DOTALL)
    assert {name.removesuffix(".yaml") for name, _ in examples} > set(PRESETS)
    for name, body in examples:
        (tmp_path / name).write_text(body)
        found = load_recipe(str(tmp_path / name))
        if found.name in PRESETS:
            assert found.digest() == load_recipe(found.name).digest()
