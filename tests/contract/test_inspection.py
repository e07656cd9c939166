"""Inspection: family, head and tier of sound folders, and the trained checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import (
    CorruptModelError,
    HeadWeightsError,
    ModelNotFoundError,
    NotAModelError,
    UnsupportedModelError,
)
from mtplx.contracts.families import FAMILIES
from mtplx.contracts.inspection import Inspection, Tier, inspect_folder
from tests.support.checkpoints import TRAINED, TrainedName, require_checkpoint
from tests.support.header_models import (
    INDEX,
    blank,
    config_of,
    mimo_head_names,
    nextn_names,
    qwen_head_names,
    trunk_names,
    write_model,
)
from tests.support.tensorfile import Tensor, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

JSON_KEYS = {
    "path",
    "tier",
    "can_run",
    "can_use_head",
    "exit_code",
    "reasons",
    "warnings",
    "error",
    "family",
    "model_type",
    "num_layers",
    "head",
    "quantization",
    "norm_encoding",
    "eos_token_ids",
    "tokenizer",
    "chat_template",
    "context_length",
    "size_bytes",
    "weight_files",
    "ignored_files",
    "vision",
    "contract",
}


def inspected(
    folder: Path, model_type: str, names: list[str], layers: int = 2, **extra: Any
) -> Inspection:
    return inspect_folder(write_model(folder, config_of(model_type, layers, **extra), names))


def warned(found: Inspection, *words: str) -> bool:
    return any(all(word in warning for word in words) for warning in found.warnings)


@pytest.mark.parametrize("name", TRAINED)
def test_trained_checkpoint_is_runnable_and_unverified(name: TrainedName) -> None:
    found = inspect_folder(require_checkpoint(name))
    assert found.error is None
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert found.exit_code == 0
    assert found.can_use_head
    assert found.family is not None
    assert found.family.name == name
    assert found.head.found == 1
    assert found.head.state == (
        "undeclared+present" if name == "qwen3_next" else "declared+present"
    )
    assert found.norm_encoding == ("delta" if name.startswith("qwen") else "absolute")
    assert found.eos_token_ids == (8183, 8185)
    assert found.has_tokenizer
    assert found.chat_template_source == "tokenizer_config.json"
    assert found.context_length == 4096
    assert found.warnings == ()
    assert set(found.head.dtypes) == {"BF16"}
    shown = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert shown.keys() == JSON_KEYS
    assert shown["size_bytes"] == found.size_bytes > found.head.nbytes > 0


def test_account_is_the_same_at_every_look(tmp_path: Path) -> None:
    names = trunk_names(2) + mimo_head_names()
    first = inspected(tmp_path, "mimo", names)
    assert json.dumps(inspect_folder(tmp_path).to_json()) == json.dumps(first.to_json())


@pytest.mark.parametrize("folder", ["missing", "empty", "broken", "unknown"])
def test_account_of_a_bad_folder_has_the_same_keys(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder
    if folder != "missing":
        path.mkdir()
    if folder == "broken":
        write_model(path, config_of("mimo"), trunk_names(2))
        (path / "model.safetensors").write_bytes(b"short")
    if folder == "unknown":
        (path / "config.json").write_text('{"model_type": ["\\ud800"]}')
    shown = json.loads(json.dumps(inspect_folder(path).to_json(), allow_nan=False))
    assert shown.keys() == JSON_KEYS
    assert shown["can_run"] is False
    assert shown["exit_code"] == shown["error"]["exit_code"] != 0
    assert shown["reasons"]


def test_no_mlx_and_no_pydantic_are_loaded(tmp_path: Path) -> None:
    write_model(tmp_path, config_of("mimo"), trunk_names(2) + mimo_head_names())
    code = (
        "import sys, mtplx.contracts.inspection as i\n"
        f"assert i.inspect_folder({str(tmp_path)!r}).can_run\n"
        "roots = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(roots & {'mlx', 'mlx_lm', 'transformers', 'pydantic', 'numpy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("layers", [2, 61, 78])
def test_head_behind_the_last_layer(tmp_path: Path, layers: int) -> None:
    names = trunk_names(layers) + nextn_names(layers)
    found = inspected(tmp_path, "deepseek_v3", names, layers, num_nextn_predict_layers=1)
    assert found.can_use_head
    assert found.num_layers == layers
    assert found.head_tensors is not None
    assert found.head_tensors.prefix == f"model.layers.{layers}."
    assert not warned(found, "MTP")


def test_layer_610_is_no_head_of_61_layers_and_is_reported(tmp_path: Path) -> None:
    names = trunk_names(61) + nextn_names(610)
    found = inspected(tmp_path, "deepseek_v3", names, 61, num_nextn_predict_layers=1)
    assert found.tier is Tier.NO_MTP_HEADS
    assert warned(found, "not understood", "model.layers.610.eh_proj.weight")


def test_announced_and_missing_head_runs_plain(tmp_path: Path) -> None:
    found = inspected(tmp_path, "glm4_moe", trunk_names(2), num_nextn_predict_layers=1)
    assert found.tier is Tier.NO_MTP_HEADS
    assert found.head.state == "declared+missing"
    assert "declared 1" in found.reasons[0]
    assert "found 0" in found.reasons[0]
    assert found.can_run
    assert not found.can_use_head
    assert found.exit_code == 0


def test_model_that_announces_and_has_nothing(tmp_path: Path) -> None:
    found = inspected(tmp_path, "glm4_moe", trunk_names(2), num_nextn_predict_layers=0)
    assert found.tier is Tier.NO_MTP_HEADS
    assert found.head.state == "none"
    assert found.can_run


def test_unannounced_head_is_used(tmp_path: Path) -> None:
    found = inspected(tmp_path, "qwen3_next", trunk_names(2) + qwen_head_names())
    assert found.head.state == "undeclared+present"
    assert found.can_use_head


def test_counts_that_disagree_are_reported(tmp_path: Path) -> None:
    names = trunk_names(2) + nextn_names(2)
    found = inspected(tmp_path, "glm4_moe", names, num_nextn_predict_layers=3)
    assert warned(found, "announces 3", "hold 1")


@pytest.mark.parametrize(
    ("model_type", "head", "lost"),
    [
        ("qwen3_5", qwen_head_names(), "fc.weight"),
        ("deepseek_v3", nextn_names(2), "eh_proj.weight"),
        ("mimo", mimo_head_names(), "input_proj.weight"),
    ],
)
def test_half_a_head_is_corrupt(
    tmp_path: Path, model_type: str, head: list[str], lost: str
) -> None:
    names = trunk_names(2) + [name for name in head if not name.endswith(lost)]
    found = inspected(tmp_path, model_type, names)
    assert isinstance(found.error, HeadWeightsError)
    assert found.tier is Tier.CORRUPT
    assert lost in found.error.message


def test_tensors_and_keys_of_unknown_mtp_are_listed(tmp_path: Path) -> None:
    names = [*trunk_names(2), *mimo_head_names(), "model.mtp_gate.weight", "nextn.scale"]
    found = inspected(tmp_path, "mimo", names, mtp_gate_kind="soft")
    assert found.can_run
    assert warned(found, "2 tensors", "model.mtp_gate.weight", "nextn.scale")
    assert warned(found, "mtp_gate_kind")


def test_names_of_strangers_cannot_steer_the_terminal(tmp_path: Path) -> None:
    found = inspected(tmp_path, "mimo", trunk_names(2), **{"mtp\x1b[2J\ud800": 1})
    assert warned(found, "mtp\\x1b[2J\\ud800")
    assert all(warning.isprintable() for warning in found.warnings)


def test_sidecar_that_nobody_understands_is_listed(tmp_path: Path) -> None:
    write_tensors(tmp_path / "mtp/weights.safetensors", blank("draft.weight"))
    found = inspected(tmp_path, "mimo", trunk_names(2))
    assert found.tier is Tier.NO_MTP_HEADS
    assert warned(found, "draft.weight")


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.ar_only], ids=lambda f: f.name)
def test_families_without_heads_run_plain(tmp_path: Path, family: Any) -> None:
    found = inspected(tmp_path, family.model_types[0], trunk_names(2))
    assert found.tier is Tier.AR_ONLY
    assert found.can_run
    assert not found.can_use_head


def test_head_without_a_backend_leaves_a_plain_model(tmp_path: Path) -> None:
    found = inspected(tmp_path, "step3p5", trunk_names(2) + nextn_names(2))
    assert found.tier is Tier.ARCHITECTURE_COMPATIBLE_UNVERIFIED
    assert "head present, no backend yet" in found.reasons[0]
    assert found.can_run
    assert not found.can_use_head
    assert found.head_tensors is not None
    assert found.exit_code == 0


def test_family_that_nothing_runs(tmp_path: Path) -> None:
    found = inspected(tmp_path, "hy_v3", trunk_names(2) + nextn_names(2))
    assert found.tier is Tier.INCOMPATIBLE
    assert isinstance(found.error, UnsupportedModelError)
    assert "head present" in found.error.message
    assert "no backend yet" in found.error.message
    assert found.exit_code == 5


def test_unknown_type_names_the_known_ones(tmp_path: Path) -> None:
    found = inspected(tmp_path, "mystery", trunk_names(2))
    assert found.tier is Tier.INCOMPATIBLE
    assert found.exit_code == 5
    assert found.error is not None
    for family in FAMILIES:
        if family.has_trunk:
            assert all(name in found.error.hint for name in family.model_types)


def test_unknown_wrapper_around_a_known_text_model(tmp_path: Path) -> None:
    found = inspected(tmp_path, "my_wrapper", trunk_names(2), text_config=config_of("qwen3_5_text"))
    assert isinstance(found.error, UnsupportedModelError)
    assert "my_wrapper" in found.error.message


@pytest.mark.parametrize(
    "extra",
    [{"model_file": "modeling.py"}, {"trust_remote_code": True}],
)
def test_code_of_the_repository_is_refused(tmp_path: Path, extra: dict[str, Any]) -> None:
    found = inspected(tmp_path, "mimo", trunk_names(2) + mimo_head_names(), **extra)
    assert found.tier is Tier.INCOMPATIBLE
    assert isinstance(found.error, UnsupportedModelError)
    assert next(iter(extra)) in found.error.message


def test_code_that_is_only_offered_is_not_run(tmp_path: Path) -> None:
    names = trunk_names(2) + mimo_head_names()
    found = inspected(tmp_path, "mimo", names, auto_map={"AutoModel": "evil.Model"})
    assert found.can_run
    assert warned(found, "auto_map", "not run")


def test_variant_of_a_family_that_nobody_runs(tmp_path: Path) -> None:
    text = config_of("qwen3_5_text", mtp_use_dedicated_embeddings=True)
    found = inspected(tmp_path, "qwen3_5", trunk_names(2), text_config=text)
    assert isinstance(found.error, UnsupportedModelError)
    assert "mtp_use_dedicated_embeddings" in found.error.message


def test_layers_without_tensors_are_an_incomplete_download(tmp_path: Path) -> None:
    found = inspected(tmp_path, "mimo", trunk_names(3) + mimo_head_names(), layers=5)
    assert isinstance(found.error, CorruptModelError)
    assert "layers 3, 4" in found.error.message
    assert "Incomplete download" in found.error.hint


def test_absurd_layer_count_is_answered_at_once(tmp_path: Path) -> None:
    found = inspected(tmp_path, "mimo", trunk_names(2), layers=10**12)
    assert isinstance(found.error, CorruptModelError)


def test_stale_index_does_not_hide_that_the_file_is_not_whole(tmp_path: Path) -> None:
    write_model(tmp_path, config_of("mimo", 4), trunk_names(2))
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "old.safetensors"}}))
    assert isinstance(inspect_folder(tmp_path).error, CorruptModelError)


def test_model_without_an_embedding(tmp_path: Path) -> None:
    found = inspected(tmp_path, "mimo", trunk_names(2)[1:])
    assert isinstance(found.error, CorruptModelError)
    assert "embed_tokens" in found.error.message


def test_vision_tower_is_reported_and_text_only_said(tmp_path: Path) -> None:
    tower = [f"vision_tower.blocks.{i}.weight" for i in range(3)]
    (tmp_path / "preprocessor_config.json").write_text("{}")
    names = trunk_names(2) + mimo_head_names() + tower
    found = inspected(tmp_path, "mimo", names, vision_config={})
    assert found.vision == {"tensors": 3, "prefix": "vision_tower.", "preprocessor": True}
    assert warned(found, "text only", "3 tensors")
    assert found.can_use_head


def test_vision_that_is_only_described_is_not_claimed(tmp_path: Path) -> None:
    found = inspected(tmp_path, "mimo", trunk_names(2), vision_config={"depth": 2})
    assert found.vision is None
    assert warned(found, "text only")


def test_head_report_counts_types_and_bytes(tmp_path: Path) -> None:
    head = blank(*mimo_head_names())
    head["model.mtp_layers.0.mlp.up_proj.weight"] = Tensor("BF16", (4, 2), bytes(16))
    folder = write_model(tmp_path, config_of("mimo"), blank(*trunk_names(2)) | head)
    report = inspect_folder(folder).head
    assert report.dtypes == {"BF16": 1, "F32": 4}
    assert report.nbytes == 16 + 4 * 8
    assert report.tensor_names == tuple(sorted(head))


def test_path_of_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "none", "~no-such-user-here/model", "a\0b"):
        found = inspect_folder(path)
        assert isinstance(found.error, ModelNotFoundError)
        assert found.exit_code == 3


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("model.gguf", "GGUF"),
        ("adapter_config.json", "adapter"),
        ("snapshots/x", "snapshots"),
        ("notes.txt", "config.json"),
    ],
)
def test_folder_without_a_config_says_what_it_may_be(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    found = inspect_folder(tmp_path)
    assert isinstance(found.error, NotAModelError)
    assert hint in found.error.hint


def test_error_is_raised_on_demand(tmp_path: Path) -> None:
    with pytest.raises(NotAModelError):
        inspect_folder(tmp_path).raise_if_unrunnable()
    inspected(tmp_path / "good", "mimo", trunk_names(2)).raise_if_unrunnable()
