"""The verified tier: what earns it, and everything that takes it away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Inspection, Tier, inspect_folder
from tests.support.header_models import (
    blank,
    config_of,
    mimo_head_names,
    qwen_head_names,
    trunk_names,
    write_model,
)
from tests.support.tensorfile import write_tensors

if TYPE_CHECKING:
    from pathlib import Path

HEAD = {
    "layout": "mimo",
    "feed": "post",
    "recycle": "post",
    "concat": "hidden_embedding",
    "norm_encoding": "absolute",
}


def write_contract(folder: Path, **changes: Any) -> Inspection:
    """A contract with all evidence for the content as it is now, changed as asked."""
    identity = inspect_folder(folder).identity
    contract = {
        "schema_version": 1,
        "arch_id": "mimo",
        "mtp_depth_max": 3,
        "head": HEAD,
        "exactness": {"passed": True, "tokens": 6144, "differences": 0},
        "speed_evidence": {"gain": 1.4, "gain_interval": [1.3, 1.5]},
        "content": {"identity": identity.combined, "files": identity.hashes()},
        **changes,
    }
    (folder / CONTRACT_NAME).write_text(json.dumps(contract))
    return inspect_folder(folder)


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
        "arch_id": "mimo",
        "mtp_depth_max": 3,
        "unknown_keys": [],
    }


@pytest.mark.parametrize(
    "name", ["model.safetensors", "mtp/head.safetensors", "tokenizer.json", "config.json"]
)
def test_any_changed_file_takes_the_tier_away(folder: Path, name: str) -> None:
    write_contract(folder)
    content = bytearray((folder / name).read_bytes())
    content[-1:] = b"\1" if name.endswith("safetensors") else content[-1:] + b" "
    (folder / name).write_bytes(content)
    found = inspect_folder(folder)
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert name in found.reasons[-1]
    assert found.warnings


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
        ({"content": None}, "content"),
        ({"verified": True, "exactness": None}, "exactness"),
    ],
)
def test_presence_of_keys_is_no_proof(folder: Path, changes: dict[str, Any], word: str) -> None:
    found = write_contract(folder, **changes)
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert word in found.reasons[-1]


def test_contract_cannot_give_a_model_a_head(tmp_path: Path) -> None:
    write_model(tmp_path, config_of("mimo"), trunk_names(2))
    assert write_contract(tmp_path).tier is Tier.NO_MTP_HEADS


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
    head = {**HEAD, "layout": "qwen", "norm_encoding": encoding}
    assert write_contract(tmp_path, head=head).norm_encoding == encoding


def test_identity_is_computed_once_and_shows_progress(folder: Path) -> None:
    found = inspect_folder(folder)
    kept = found.identity
    assert found.identity is kept
    steps: list[tuple[int, int]] = []
    again = found.compute_identity(lambda done, total: steps.append((done, total)))
    assert again.combined == kept.combined
    assert steps[-1][0] == steps[-1][1]
