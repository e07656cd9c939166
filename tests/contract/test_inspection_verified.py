"""The verified tier: what earns it, and everything that takes it away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Inspection, Tier, inspect_folder
from tests.support.contracts import SPEED, content_of, write_verified
from tests.support.header_models import (
    blank,
    config_of,
    mimo_head_names,
    qwen_head_names,
    trunk_names,
    write_model,
)
from tests.support.tensorfile import Tensor, read_tensors, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

DELTA = {
    "layout": "qwen",
    "feed": "post",
    "recycle": "post",
    "concat": "embedding_hidden",
    "norm_encoding": "delta",
}


def write_contract(folder: Path, **changes: Any) -> Inspection:
    """A contract with all evidence for the content as it is now, changed as asked."""
    return inspect_folder(write_verified(folder, **changes))


def change(path: Path) -> None:
    """Another last byte, and a byte more where the size may change."""
    content = bytearray(path.read_bytes())
    content[-1:] = b"\1" if path.suffix == ".safetensors" else content[-1:] + b" "
    path.write_bytes(content)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "mtp/head.safetensors", blank(*mimo_head_names()))
    (tmp_path / "tokenizer.json").write_text("{}")
    return write_model(tmp_path, config_of("mimo"), trunk_names(2))


def test_proven_and_unchanged_artifact_is_verified(folder: Path) -> None:
    found = write_contract(folder)
    assert found.tier is Tier.VERIFIED
    assert found.exit_code == 0
    assert found.to_json()["contract"] == {
        "schema_version": 1,
        "mtplx_version": None,
        "arch_id": "mimo-mtp",
        "mtp_depth_max": 3,
        "unknown_keys": [],
    }


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
@pytest.mark.parametrize("verify_hashes", [False, True])
def test_changed_small_file_takes_the_tier_away(
    folder: Path, name: str, verify_hashes: bool
) -> None:
    write_contract(folder)
    change(folder / name)
    found = inspect_folder(folder, verify_hashes=verify_hashes)
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert found.can_use_head
    assert name in found.reasons[-1]
    assert any(name in warning for warning in found.warnings)


def test_small_file_of_the_same_size_is_read_whole(folder: Path) -> None:
    write_contract(folder)
    (folder / "tokenizer.json").write_text("[]")
    assert "tokenizer.json" in inspect_folder(folder).reasons[-1]


@pytest.mark.parametrize("name", ["model.safetensors", "mtp/head.safetensors"])
def test_changed_value_in_the_weights_is_found_by_reading_every_byte(
    folder: Path, name: str
) -> None:
    write_contract(folder)
    change(folder / name)
    cheap = inspect_folder(folder)
    assert cheap.tier is Tier.VERIFIED
    assert "sizes, weight headers and small files" in cheap.reasons[-1]
    found = inspect_folder(folder, verify_hashes=True)
    assert found.tier is Tier.CORRUPT
    assert isinstance(found.error, CorruptModelError)
    assert name in found.error.message
    assert CONTRACT_NAME in found.error.hint
    assert not found.can_use_head


def test_full_check_says_that_every_byte_was_compared(folder: Path) -> None:
    write_contract(folder)
    steps: list[tuple[int, int]] = []
    found = inspect_folder(
        folder, verify_hashes=True, on_progress=lambda done, total: steps.append((done, total))
    )
    assert found.tier is Tier.VERIFIED
    assert "every byte" in found.reasons[-1]
    total = sum(record["size"] for record in content_of(folder)["files"].values())
    assert steps[-1] == (total, total)


def test_cheap_check_reads_no_weights(folder: Path) -> None:
    write_contract(folder)
    steps: list[tuple[int, int]] = []
    inspect_folder(folder, on_progress=lambda done, total: steps.append((done, total)))
    small = {"tokenizer.json", "config.json"}
    assert steps[-1][1] == sum((folder / name).stat().st_size for name in small)


@pytest.mark.parametrize("name", ["model.safetensors", "mtp/head.safetensors"])
def test_other_tensors_than_the_contract_s_are_corrupt(folder: Path, name: str) -> None:
    write_contract(folder)
    tensors = read_tensors(folder / name)
    first = next(iter(tensors))
    write_tensors(folder / name, {**tensors, first: Tensor("F16", (4,), bytes(8))})
    found = inspect_folder(folder)
    assert found.tier is Tier.CORRUPT
    assert found.error is not None
    assert name in found.error.message


def test_weights_that_the_contract_does_not_know_are_corrupt(folder: Path) -> None:
    write_contract(folder)
    write_tensors(folder / "mtp/more.safetensors", blank("model.mtp_layers.0.more.weight"))
    assert inspect_folder(folder).tier is Tier.CORRUPT


def test_weights_are_compared_whatever_the_evidence(folder: Path) -> None:
    write_contract(folder, exactness=None)
    write_tensors(folder / "mtp/head.safetensors", blank(*mimo_head_names(), shape=(3,)))
    assert inspect_folder(folder).tier is Tier.CORRUPT


def test_identity_that_is_not_that_of_the_files(folder: Path) -> None:
    found = write_contract(folder, content={**content_of(folder), "identity": "0" * 64})
    assert found.tier is Tier.CORRUPT
    assert found.error is not None
    assert "0" * 64 in found.error.message


@pytest.mark.parametrize("contract", [None, {"schema_version": 1}])
def test_hashes_that_are_not_recorded_cannot_be_verified(folder: Path, contract: object) -> None:
    if contract is not None:
        (folder / CONTRACT_NAME).write_text(json.dumps(contract))
    found = inspect_folder(folder, verify_hashes=True)
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert any("No hashes to verify" in warning for warning in found.warnings)


def test_publishing_does_not_change_the_identity(folder: Path) -> None:
    published = {"published_to_hf": {"repo": "a/b", "revision": "c" * 40}}
    before = write_contract(folder, forge_provenance={"published_to_hf": None})
    after = write_contract(folder, forge_provenance=published)
    assert after.tier is Tier.VERIFIED
    assert after.identity.combined == before.identity.combined


def test_labels_are_shown(folder: Path) -> None:
    found = write_contract(folder, labels=["degraded-mtp"])
    assert any("degraded-mtp" in warning for warning in found.warnings)


def test_added_template_takes_the_tier_away(folder: Path) -> None:
    write_contract(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    found = inspect_folder(folder)
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert "chat_template.jinja" in found.reasons[-1]


def test_content_is_not_taken_on_trust_when_it_is_not_compared(folder: Path) -> None:
    write_contract(folder)
    found = inspect_folder(folder, check_content=False)
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert "not compared" in found.reasons[-1]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"exactness": None}, "exactness"),
        ({"exactness": {"passed": True, "tokens": 10, "differences": 1}}, "exactness"),
        ({"exactness": None, "exactness_baseline": {"passed": True}}, "exactness"),
        ({"speed_evidence": {"gain": 9.0}}, "speed"),
        ({"speed_evidence": {**SPEED, "verdict": "exactness_failed"}}, "exactness_failed"),
        ({"content": None}, "content"),
        ({"verified": True, "exactness": None}, "exactness"),
    ],
)
def test_presence_of_keys_is_no_proof(folder: Path, changes: dict[str, Any], word: str) -> None:
    found = write_contract(folder, **changes)
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert word in found.reasons[-1]


def test_artifact_that_lost_its_head_is_corrupt(folder: Path) -> None:
    write_contract(folder)
    (folder / "mtp/head.safetensors").unlink()
    found = inspect_folder(folder)
    assert found.tier is Tier.CORRUPT
    assert isinstance(found.error, CorruptModelError)


def test_contract_cannot_give_a_model_a_head(tmp_path: Path) -> None:
    write_model(tmp_path, config_of("mimo"), trunk_names(2))
    assert write_contract(tmp_path, head=None).tier is Tier.NO_MTP_HEADS


def test_newer_contract_stops_the_model(folder: Path) -> None:
    found = write_contract(folder, schema_version=2)
    assert found.tier is Tier.INCOMPATIBLE
    assert isinstance(found.error, UnsupportedModelError)
    assert found.exit_code == 5


def test_broken_contract_is_an_error_and_not_ignored(folder: Path) -> None:
    (folder / CONTRACT_NAME).write_text("{")
    found = inspect_folder(folder)
    assert isinstance(found.error, CorruptModelError)
    assert CONTRACT_NAME in found.error.message


def test_keys_that_would_set_the_environment_are_reported(folder: Path) -> None:
    found = write_contract(folder, runtime_env_overrides={"A": "1"}, served_model_id="x")
    assert any("environment" in w and "runtime_env_overrides" in w for w in found.warnings)
    assert any("served_model_id" in w for w in found.warnings)


@pytest.mark.parametrize("encoding", ["absolute", "delta"])
def test_recorded_norm_encoding_decides_for_a_converted_pack(tmp_path: Path, encoding: str) -> None:
    tensors = blank(*trunk_names(2), *qwen_head_names())
    write_model(tmp_path, config_of("qwen3_next"), tensors, made_by="mlx")
    assert inspect_folder(tmp_path).norm_encoding == "undecided-needs-values"
    head = {**DELTA, "norm_encoding": encoding}
    assert write_contract(tmp_path, head=head).norm_encoding == encoding


def test_identity_is_computed_once_and_shows_progress(folder: Path) -> None:
    found = inspect_folder(folder)
    kept = found.identity
    assert found.identity is kept
    steps: list[tuple[int, int]] = []
    again = found.compute_identity(lambda done, total: steps.append((done, total)))
    assert again.combined == kept.combined
    assert steps[-1][0] == steps[-1][1]


def test_contract_from_outside_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}.json"
    elsewhere.write_text("{}")
    (folder / CONTRACT_NAME).symlink_to(elsewhere)
    found = inspect_folder(folder)
    assert found.tier is Tier.CORRUPT
    assert found.error is not None
    assert CONTRACT_NAME in found.error.message
