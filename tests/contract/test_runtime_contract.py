"""`mtplx_runtime.json`: read tolerantly, judged strictly, never obeyed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts import runtime_contract
from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.contracts.families import Wiring
from mtplx.contracts.identity import CONTRACT_NAME, FileHash, Identity
from mtplx.contracts.runtime_contract import (
    PUBLIC_ENGINE_VERSION,
    RuntimeContract,
    read_contract,
)

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC: dict[str, Any] = {
    "mtplx_version": "2.12.2",
    "arch_id": "qwen3-next-mtp",
    "mtp_depth_max": 3,
    "recommended_profile": "sustained",
    "sampler": {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
    "verified_on": {"timestamp": "2026-01-01", "hardware": "M4 Max"},
    "exactness_baseline": {},
    "speed_evidence": {"depth": 3, "tok_s": [51.2, 80.1], "verdict": "mtp_depth_wins"},
    "mtp_contract": {
        "base_hidden_variant": "post_norm",
        "hidden_variant": "pre_norm",
        "concat_order": "embedding_hidden",
        "mtp_position_mode": "cache",
    },
    "min_engine_version": "2.5.0",
    "runtime_env_overrides": {"MTPLX_FAST": "1"},
    "served_model_id": "x",
}

OURS: dict[str, Any] = {
    "schema_version": 1,
    "mtplx_version": "0.1.0",
    "min_engine_version": "0.1.0",
    "arch_id": "mimo",
    "content": {"identity": "a" * 64, "files": {"model.safetensors": "b" * 64}},
    "head": {
        "layout": "mimo",
        "feed": "post",
        "recycle": "pre",
        "concat": "hidden_embedding",
        "norm_encoding": "absolute",
        "mask_position0": True,
    },
    "exactness": {"passed": True, "tokens": 6144, "differences": 0, "numeric_ties": 1},
    "speed_evidence": {"depth": 3, "gain": 1.4, "gain_interval": [1.31, 1.48]},
    "calibration": {"candidates": []},
}


@pytest.fixture(autouse=True)
def _known_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_contract, "__version__", "0.1.0")


def read(folder: Path, contract: object) -> RuntimeContract:
    text = contract if isinstance(contract, str) else json.dumps(contract)
    (folder / CONTRACT_NAME).write_text(text)
    found = read_contract(folder)
    assert found is not None
    return found


def test_folder_without_a_contract(tmp_path: Path) -> None:
    assert read_contract(tmp_path) is None


def test_public_contract_is_read_and_its_other_keys_are_kept(tmp_path: Path) -> None:
    contract = read(tmp_path, PUBLIC)
    assert contract.is_public
    assert contract.mtp_depth_max == 3
    assert contract.sampler is not None
    assert contract.sampler.top_k == 20
    assert contract.unknown_keys == ("runtime_env_overrides", "served_model_id")
    assert contract.model_extra == {k: PUBLIC[k] for k in contract.unknown_keys}
    assert contract.wiring == Wiring(feed="post", recycle="pre")


def test_environment_in_a_contract_is_refused_and_nothing_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MTPLX_FAST", raising=False)
    contract = read(tmp_path, PUBLIC)
    assert contract.refused_keys == ("runtime_env_overrides",)
    assert "MTPLX_FAST" not in os.environ


def test_presence_of_the_public_keys_proves_nothing(tmp_path: Path) -> None:
    unproven = " ".join(read(tmp_path, PUBLIC).unproven())
    assert "exactness" in unproven
    assert "speed" in unproven
    assert "content" in unproven


def test_own_contract_with_all_evidence(tmp_path: Path) -> None:
    contract = read(tmp_path, OURS)
    assert contract.unproven() == ()
    assert contract.unknown_keys == ()
    assert contract.wiring == Wiring("post", "pre", "hidden_embedding", False, True)


@pytest.mark.parametrize(
    ("part", "change", "word"),
    [
        ("exactness", {"passed": False}, "exactness"),
        ("exactness", {"differences": 1}, "exactness"),
        ("exactness", {"tokens": 0}, "exactness"),
        ("speed_evidence", {"gain_interval": [0.99, 1.6]}, "speed"),
        ("speed_evidence", {"gain_interval": [1.0, 1.6]}, "speed"),
        ("speed_evidence", {"gain_interval": None}, "speed"),
        ("speed_evidence", {"gain_interval": [1.5, 1.2]}, "speed"),
        ("content", None, "content"),
        ("exactness", None, "exactness"),
    ],
)
def test_each_piece_of_evidence_is_needed(
    tmp_path: Path, part: str, change: dict[str, Any] | None, word: str
) -> None:
    changed = {**OURS, part: change if change is None else {**OURS[part], **change}}
    (fault,) = read(tmp_path, changed).unproven()
    assert word in fault


def test_changed_added_and_removed_files_are_named(tmp_path: Path) -> None:
    content = {"identity": "a" * 64, "files": {"a": "1" * 64, "b": "2" * 64}}
    contract = read(tmp_path, {**OURS, "content": content})

    def identity(**hashes: str) -> Identity:
        return Identity(tuple(FileHash("weights", n, 1, h * 64) for n, h in hashes.items()))

    assert contract.content_differences(identity(a="1", b="2")) == ()
    assert contract.content_differences(identity(a="9", c="3")) == ("a", "b", "c")


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"schema_version": 99, "exactness": "a format of the future"},
        {"min_engine_version": "0.1.1"},
        {"min_engine_version": "0.2"},
        {"min_engine_version": "v10.0.0rc1"},
    ],
)
def test_newer_contract_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match=CONTRACT_NAME) as caught:
        read(tmp_path, {**OURS, **change})
    assert "Upgrade" in caught.value.hint


def test_public_contract_is_judged_by_the_public_version(tmp_path: Path) -> None:
    assert read(tmp_path, {**PUBLIC, "min_engine_version": PUBLIC_ENGINE_VERSION}).is_public
    with pytest.raises(UnsupportedModelError, match=r"2\.99\.0"):
        read(tmp_path, {**PUBLIC, "min_engine_version": "2.99.0"})


@pytest.mark.parametrize("version", ["0.1", "0.1.0", "0.0.9", "0.1.0.0"])
def test_engine_version_that_is_reached(tmp_path: Path, version: str) -> None:
    assert read(tmp_path, {**OURS, "min_engine_version": version}).min_engine_version == version


@pytest.mark.parametrize(
    ("contract", "where"),
    [
        ("{", "JSON"),
        ("[]", "JSON"),
        ({"schema_version": "1"}, "schema_version"),
        ({"schema_version": 0}, "schema_version"),
        ({"mtp_depth_max": -1}, "mtp_depth_max"),
        ({"sampler": {"top_p": 2}}, "sampler.top_p"),
        ({**OURS, "head": {"layout": "mimo"}}, "head.feed"),
        ({**OURS, "head": {**OURS["head"], "norm_encoding": "maybe"}}, "head.norm_encoding"),
        ({**OURS, "content": {"identity": "short", "files": {}}}, "content.identity"),
        ({**OURS, "exactness": {**OURS["exactness"], "passed": "yes"}}, "exactness.passed"),
        ({"min_engine_version": "newest"}, "min_engine_version"),
    ],
)
def test_malformed_contract_names_the_place(tmp_path: Path, contract: object, where: str) -> None:
    with pytest.raises(CorruptModelError, match=where) as caught:
        read(tmp_path, contract)
    assert CONTRACT_NAME in caught.value.message


@pytest.mark.parametrize(
    "public",
    [
        {"base_hidden_variant": "post_norm"},
        {**PUBLIC["mtp_contract"], "hidden_variant": "fc"},
        {**PUBLIC["mtp_contract"], "concat_order": "sum"},
        {},
    ],
)
def test_wiring_that_is_not_fully_recorded_is_not_guessed(
    tmp_path: Path, public: dict[str, str]
) -> None:
    assert read(tmp_path, {**PUBLIC, "mtp_contract": public}).wiring is None
