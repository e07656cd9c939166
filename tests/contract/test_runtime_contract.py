"""`mtplx_runtime.json`: read tolerantly, judged strictly, never obeyed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts import runtime_contract
from mtplx.contracts.errors import CorruptModelError, UnsupportedModelError
from mtplx.contracts.families import Wiring
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.runtime_contract import (
    PUBLIC_ENGINE_VERSION,
    RuntimeContract,
    read_contract,
    write_contract,
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
    "arch_id": "mimo-mtp",
    "mtp_depth_max": 3,
    "vision": None,
    "content": {
        "identity": "a" * 64,
        "files": {
            "model.safetensors": {"sha256": "b" * 64, "size": 9, "header_sha256": "c" * 64},
            "config.json": {"sha256": "d" * 64, "size": 2, "header_sha256": None},
        },
    },
    "head": {
        "layout": "mimo",
        "feed": "post",
        "recycle": "pre",
        "concat": "hidden_embedding",
        "norm_encoding": "absolute",
        "mask_position0": True,
        "quantization": {"0.input_proj": {"bits": 8, "group_size": 64, "mode": "affine"}},
    },
    "exactness": {"passed": True, "tokens": 6144, "differences": 0, "numeric_ties": 1},
    "speed_evidence": {"depth": 3, "gain": 1.4, "gain_interval": [1.31, 1.48]},
    "calibration": {"scores": [], "decided_by": {"feed": "measurement"}, "norm_shift": {}},
    "forge_provenance": {"source_repo": "a/b", "versions": {"mlx": "0.32.4"}},
    "labels": ["degraded-mtp"],
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
        ("speed_evidence", {"gain": 1.04, "gain_interval": [1.01, 1.08]}, "speed"),
        ("speed_evidence", {"verdict": "no_mtp_depth_beat_ar"}, "no_mtp_depth_beat_ar"),
        ("speed_evidence", {"verdict": "mtp_acceptance_collapsed"}, "collapsed"),
        ("speed_evidence", {"verdict": "exactness_failed"}, "exactness_failed"),
        ("exactness", {"law": {"passed": False}}, "exactness"),
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
        ({**OURS, "head": {**OURS["head"], "feed": "before"}}, "head.feed"),
        ({**OURS, "head": {**OURS["head"], "mtp_layers": 0}}, "head.mtp_layers"),
        ({**OURS, "labels": "degraded-mtp"}, "labels"),
        ({**OURS, "calibration": {"norm_shift": {"norm.weight": 0.5}}}, "norm_shift"),
        ({"mtp_depth_max": 10**40}, "mtp_depth_max"),
        ({"mtp_depth_max": 3.0}, "mtp_depth_max"),
        ({"mtp_depth_max": True}, "mtp_depth_max"),
        ({"recommended_generation_mode": "fast"}, "recommended_generation_mode"),
        ({"speed_evidence": {"gain": -1}}, "speed_evidence.gain"),
        ({"speed_evidence": {"gain_interval": [1.2]}}, "speed_evidence.gain_interval"),
        ('{"speed_evidence": {"gain": NaN}}', "not finite"),
        ('{"verified_on": {"load": -Infinity}}', "not finite"),
        ('{"anything": 1e999}', "not finite"),
        ('{"arch_id": "a", "arch_id": "b"}', "twice"),
        ('{"head": {"feed": "pre", "feed": "post"}}', "twice"),
        ('{"anything": "\\ud800"}', "UTF-8"),
        ('{"\\udfff": 1}', "UTF-8"),
        ('{"anything": ' + "[" * 40 + "]" * 40 + "}", "nested"),
        ('{"anything": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested"),
        ('{"mtp_depth_max": ' + "9" * 5000 + "}", "JSON"),
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


@pytest.mark.parametrize("entry", [{"sha256": "a" * 64, "size": 1}, "a" * 64])
def test_weights_are_recorded_with_their_header(tmp_path: Path, entry: object) -> None:
    content = {"identity": "a" * 64, "files": {"model.safetensors": entry}}
    with pytest.raises(CorruptModelError, match=r"content.*safetensors"):
        read(tmp_path, {**OURS, "content": content})


@pytest.mark.parametrize("contract", [PUBLIC, OURS, {}], ids=["public", "ours", "empty"])
def test_contract_that_is_written_and_read_is_the_same(
    tmp_path: Path, contract: dict[str, Any]
) -> None:
    found = read(tmp_path, contract)
    write_contract(tmp_path, found)
    first = (tmp_path / CONTRACT_NAME).read_bytes()
    assert read_contract(tmp_path) == found
    write_contract(tmp_path, found)
    assert (tmp_path / CONTRACT_NAME).read_bytes() == first


def test_order_of_the_keys_does_not_depend_on_the_reader_s_input(tmp_path: Path) -> None:
    write_contract(tmp_path, read(tmp_path, OURS))
    first = (tmp_path / CONTRACT_NAME).read_bytes()
    write_contract(tmp_path, read(tmp_path, dict(reversed(OURS.items()))))
    assert (tmp_path / CONTRACT_NAME).read_bytes() == first
    assert list(json.loads(first))[:3] == ["schema_version", "mtplx_version", "min_engine_version"]


def test_unknown_keys_survive_a_change_at_every_level(tmp_path: Path) -> None:
    speed = {**OURS["speed_evidence"], "greedy_diagnostic": {"a": [1, None]}}
    contract = read(tmp_path, {**OURS, "served_model_id": "x", "speed_evidence": speed})
    changed = contract.model_copy(update={"mtp_depth_max": 5})
    write_contract(tmp_path, changed)
    written = json.loads((tmp_path / CONTRACT_NAME).read_text())
    assert written["mtp_depth_max"] == 5
    assert written["served_model_id"] == "x"
    assert written["speed_evidence"]["greedy_diagnostic"] == {"a": [1, None]}


def test_public_contract_gets_no_keys_by_being_written(tmp_path: Path) -> None:
    write_contract(tmp_path, read(tmp_path, PUBLIC))
    assert json.loads((tmp_path / CONTRACT_NAME).read_text()) == PUBLIC


def test_text_only_is_said_in_so_many_words(tmp_path: Path) -> None:
    write_contract(tmp_path, read(tmp_path, OURS))
    written = json.loads((tmp_path / CONTRACT_NAME).read_text())
    assert written["vision"] is None
    assert written["labels"] == ["degraded-mtp"]
    assert written["head"]["mask_position0"] is True
