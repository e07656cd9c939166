"""What inspection says about model folders that are damaged, incomplete or contradictory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.errors import (
    CorruptModelError,
    ModelNotFoundError,
    NotAModelError,
    ShardMissingError,
    TensorFileError,
    UnsupportedModelError,
)
from mtplx.contracts.inspection import Inspection, Tier, inspect_folder
from tests.support import disk
from tests.support.tensorfile import read_tensors, write_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mtplx.contracts.errors import MTPLXError
    from tests.conftest import TinyFactory
    from tests.support.tiny_families import FamilyName

SECOND = "model-00002-of-00002.safetensors"
WRAPPERS = ("", "model.", "language_model.", "model.language_model.", "language_model.model.")


def refuse(folder: Path, error: type[MTPLXError], exit_code: int, *named: str) -> Inspection:
    """The folder is refused with that error, which names the culprits and says what to do."""
    found = inspect_folder(folder)
    assert type(found.error) is error, found.error
    assert not found.can_run
    assert found.exit_code == found.error.exit_code == exit_code
    for name in named:
        assert name in found.error.message
    assert found.error.hint
    with pytest.raises(error):
        found.raise_if_unrunnable()
    shown = json.loads(json.dumps(found.to_json()))
    assert found.error.message in json.dumps(shown, ensure_ascii=False)
    return found


@pytest.fixture
def folder(tiny: TinyFactory) -> Path:
    return tiny("mimo")


def first_shard(folder: Path) -> Path:
    return disk.shard_files(folder)[0]


def test_a_sound_folder_runs(folder: Path) -> None:
    found = inspect_folder(folder)
    assert found.error is None
    assert found.can_run
    assert found.exit_code == 0
    assert found.head.state == "declared+present"
    assert not found.warnings


def test_missing_shard_is_named_with_the_command_that_repairs(folder: Path) -> None:
    disk.drop_shard(folder)
    found = refuse(folder, ShardMissingError, 4, SECOND)
    assert found.tier is Tier.CORRUPT
    assert isinstance(found.error, ShardMissingError)
    assert found.error.missing == (SECOND,)
    assert "download" in found.error.hint


def test_renamed_shard_is_recognised_as_such(folder: Path) -> None:
    disk.rename_shard(folder, name="model-b.safetensors")
    refuse(folder, ShardMissingError, 4, SECOND, "model-b.safetensors")


def test_index_of_other_files_is_refused(folder: Path) -> None:
    disk.edit_weight_map(folder, lambda names: {n: f"old-{f}" for n, f in names.items()})
    refuse(folder, ShardMissingError, 4, f"old-{SECOND}", disk.INDEX)


def test_interrupted_download_without_index_is_incomplete(folder: Path) -> None:
    disk.drop_shard(folder)
    (folder / disk.INDEX).unlink()
    refuse(folder, ShardMissingError, 4, SECOND)


def test_no_weights_at_all(folder: Path) -> None:
    for path in disk.shard_files(folder):
        path.unlink()
    (folder / disk.INDEX).unlink()
    refuse(folder, ShardMissingError, 4, str(folder))


def test_leftover_index_beside_a_whole_file_is_only_a_warning(tiny: TinyFactory) -> None:
    folder, sharded = tiny("mimo", single_file=True), tiny("mimo")
    (folder / disk.INDEX).write_bytes((sharded / disk.INDEX).read_bytes())
    found = inspect_folder(folder)
    assert found.can_run
    assert any(disk.INDEX in warning and "delete" in warning for warning in found.warnings)


def test_stray_weight_file_is_ignored_and_named(folder: Path) -> None:
    disk.add_stray_shard(folder)
    found = inspect_folder(folder)
    assert found.can_run
    assert found.index is not None
    assert found.index.ignored_files == ("model.safetensors",)
    assert any("model.safetensors" in warning for warning in found.warnings)


def test_two_sets_of_weights_without_an_index_are_ambiguous(folder: Path) -> None:
    disk.add_stray_shard(folder)
    (folder / disk.INDEX).unlink()
    refuse(folder, TensorFileError, 4, "model.safetensors", "model-00001-of-00002.safetensors")


def test_shards_of_two_sets_without_an_index_are_refused(folder: Path) -> None:
    disk.add_stray_shard(folder, "model-00003-of-00003.safetensors")
    (folder / disk.INDEX).unlink()
    refuse(folder, TensorFileError, 4, "model-00003-of-00003.safetensors")


def test_tensor_the_index_promises_must_be_in_its_file(folder: Path) -> None:
    path, name = disk.find_tensor(folder, r"lm_head\.weight")
    tensors = read_tensors(path)
    del tensors[name]
    write_tensors(path, tensors)
    refuse(folder, TensorFileError, 4, disk.INDEX, name, path.name)


def test_one_tensor_in_two_files_is_refused(folder: Path) -> None:
    first, second = disk.shard_files(folder)
    name = next(iter(read_tensors(first)))
    write_tensors(second, {**read_tensors(second), name: read_tensors(first)[name]})
    refuse(folder, TensorFileError, 4, name, first.name, second.name)


def test_index_may_not_lead_out_of_the_folder(folder: Path) -> None:
    disk.edit_weight_map(
        folder, lambda names: dict.fromkeys(names, "../elsewhere/model.safetensors")
    )
    refuse(folder, TensorFileError, 4, "../elsewhere/model.safetensors")


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (disk.truncate, "truncated"),
        (lambda path: disk.truncate(path, path.stat().st_size - 4), "too short"),
        (disk.append_bytes, "longer"),
        (disk.overlap_tensors, "overlap"),
        (disk.leave_hole, "hole"),
        (lambda path: disk.claim_header_size(path, 2**40), "header"),
        (lambda path: disk.claim_shape(path, "lm_head.weight", (3, 5)), "lm_head.weight"),
        (lambda path: disk.claim_dtype(path, "lm_head.weight", "F32"), "lm_head.weight"),
        (lambda path: disk.claim_dtype(path, "lm_head.weight", "Q4_K"), "Q4_K"),
    ],
    ids=[
        "truncated",
        "cut to nothing",
        "longer",
        "overlap",
        "hole",
        "header length",
        "shape",
        "dtype",
        "unknown dtype",
    ],
)
def test_damaged_weight_file_is_named_with_its_fault(
    folder: Path, damage: Callable[[Path], object], fault: str
) -> None:
    path, _ = disk.find_tensor(folder, r"lm_head\.weight")
    damage(path)
    found = refuse(folder, TensorFileError, 4, path.name, fault)
    assert found.tier is Tier.CORRUPT


def test_damaged_sidecar_is_as_bad_as_a_damaged_shard(tiny: TinyFactory) -> None:
    folder = tiny("mimo", sidecar="mtp/head.safetensors")
    disk.truncate(folder / "mtp/head.safetensors")
    refuse(folder, TensorFileError, 4, "mtp/head.safetensors", "truncated")


@pytest.mark.parametrize("family", ["qwen3_5", "deepseek_v3", "glm4_moe", "mimo"])
def test_declared_head_that_is_absent_leaves_plain_decoding(
    tiny: TinyFactory, family: FamilyName
) -> None:
    found = inspect_folder(tiny(family, head=False))
    assert found.error is None
    assert found.tier is Tier.NO_MTP_HEADS
    assert found.can_run
    assert found.exit_code == 0
    assert (found.head.declared, found.head.found, found.head.state) == (1, 0, "declared+missing")
    assert any("config.json" in reason or "declare" in reason for reason in found.reasons)


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_next", "deepseek_v3", "glm4_moe", "mimo"])
def test_undeclared_head_that_is_present_is_used(tiny: TinyFactory, family: FamilyName) -> None:
    found = inspect_folder(tiny(family, declared=False))
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert (found.head.declared, found.head.found) == (None, 1)
    assert found.head.state == "undeclared+present"


def test_incomplete_head_is_refused_by_the_names_it_lacks(folder: Path) -> None:
    removed = disk.remove_tensors(folder, lambda name: name.endswith("input_proj.weight"))
    found = inspect_folder(folder)
    assert isinstance(found.error, CorruptModelError)
    assert found.exit_code == 4
    assert removed[0].removeprefix("model.mtp_layers.0.") in found.error.message


@pytest.mark.parametrize("layers", [2, 61, 78])
@pytest.mark.parametrize("family", ["deepseek_v3", "glm4_moe"])
def test_head_is_the_layer_behind_the_trunk_whatever_its_number(
    tiny: TinyFactory, family: FamilyName, layers: int
) -> None:
    found = inspect_folder(tiny(family, layers=layers))
    assert found.can_run
    assert found.head.found == 1
    assert found.head_tensors is not None
    assert found.head_tensors.prefix == f"model.layers.{layers}."
    assert found.head_tensors.names[f"model.layers.{layers}.eh_proj.weight"] == "0.eh_proj.weight"
    assert all(name.startswith(f"model.layers.{layers}.") for name in found.head_tensors.names)
    assert inspect_folder(tiny(family, layers=layers, head=False)).head.found == 0


@pytest.mark.parametrize("layers", [61, 78])
def test_a_layer_far_behind_the_trunk_is_no_head(tiny: TinyFactory, layers: int) -> None:
    folder = tiny("glm4_moe", layers=layers, prefix="model.layers.9")
    assert inspect_folder(folder).head.found == 0


def test_unknown_model_type_is_named(folder: Path) -> None:
    changes = {"model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]}
    disk.edit_json(folder / "config.json", changes)
    found = refuse(folder, UnsupportedModelError, 5, "brand_new")
    assert found.tier is Tier.INCOMPATIBLE


def test_folder_name_has_no_influence_on_the_family(tiny: TinyFactory) -> None:
    folder = tiny("mimo")
    renamed = folder.rename(folder.parent / "nemotron-glm-qwen-mix")
    found = inspect_folder(renamed)
    assert found.family is not None
    assert found.family.name == "mimo"


def test_tokenizer_and_template_are_not_needed_to_inspect(tiny: TinyFactory) -> None:
    bare = inspect_folder(tiny("mimo", tokenizer=False))
    assert bare.error is None
    assert not bare.has_tokenizer
    assert not bare.has_chat_template
    assert any("tokenizer" in warning for warning in bare.warnings)
    plain = inspect_folder(tiny("mimo", chat_template=False))
    assert plain.has_tokenizer
    assert not plain.has_chat_template
    assert any("template" in warning for warning in plain.warnings)
    assert inspect_folder(tiny("mimo", chat_template="jinja")).has_chat_template


def test_end_tokens_are_the_union_of_all_files(folder: Path) -> None:
    disk.edit_json(folder / "config.json", {"eos_token_id": 1})
    disk.edit_json(folder / "generation_config.json", {"eos_token_id": [1, 5]})
    assert set(inspect_folder(folder).eos_token_ids) == {1, 5, 62}


def test_path_that_does_not_exist(tmp_path: Path) -> None:
    refuse(tmp_path / "nowhere", ModelNotFoundError, 3, "nowhere")


def test_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    refuse(tmp_path, NotAModelError, 3, str(tmp_path), "config.json")


def test_a_file_is_no_model_folder(folder: Path) -> None:
    refuse(first_shard(folder), NotAModelError, 3, first_shard(folder).name)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe{}"])
def test_unreadable_config_is_corrupt(folder: Path, text: bytes) -> None:
    (folder / "config.json").write_bytes(text)
    refuse(folder, CorruptModelError, 4, str(folder / "config.json"))


def test_config_that_names_no_model_type_is_unsupported(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": 3}')
    refuse(folder, UnsupportedModelError, 5, "config.json")


@pytest.mark.parametrize(
    "sidecar",
    [None, "mtp/head.safetensors", "mtp.safetensors", "model-mtp-00001-of-00001.safetensors"],
)
@pytest.mark.parametrize(
    ("family", "prefix"),
    [
        *(("qwen3_5", f"{at}mtp.") for at in WRAPPERS),
        *(("mimo", f"{at}mtp_layers.") for at in WRAPPERS),
        ("glm4_moe", "language_model.model.layers."),
        ("glm4_moe", "mtp.layers."),
    ],
)
def test_head_is_found_wherever_it_hides(
    tiny: TinyFactory, family: FamilyName, prefix: str, sidecar: str | None
) -> None:
    found = inspect_folder(tiny(family, prefix=prefix, sidecar=sidecar))
    assert found.error is None
    assert found.head.state == "declared+present"
    assert found.head_tensors is not None
    published = inspect_folder(tiny(family))
    assert published.head_tensors is not None
    relative = set(published.head_tensors.names.values())
    assert set(found.head_tensors.names.values()) == relative


@pytest.mark.parametrize("naming", ["module", "checkpoint"])
def test_mixed_bits_are_accepted_under_either_naming(tiny: TinyFactory, naming: str) -> None:
    wide = {"bits": 8, "group_size": 64}
    path = "language_model.model.layers.0.mlp.up_proj"
    how = {"bits": 4, "group_size": 32, "overrides": {path: wide}, "naming": naming}
    found = inspect_folder(tiny("qwen3_5", layout="mlx", hidden=64, quantize=how))
    assert found.can_run
    assert found.quantization is not None
    assert found.quantization["bits"] == 4
    assert wide in found.quantization.values()
