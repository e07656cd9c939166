"""Contracts in both directions: those of the public tool are read, ours are accepted by its rules."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.arch_ids import arch_id
from mtplx.contracts.families import FAMILIES, Wiring
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Tier, inspect_folder
from mtplx.contracts.public_format import (
    MIN_ENGINE_VERSION,
    PUBLIC_ENGINE_VERSION,
    PUBLIC_PROFILE,
)
from mtplx.contracts.runtime_contract import (
    RuntimeContract,
    public_wiring,
    read_contract,
    write_contract,
)
from mtplx.version import __version__
from tests.support import public_tool
from tests.support.contracts import SPEED, verified_contract
from tests.support.header_models import (
    config_of,
    mimo_head_names,
    qwen_head_names,
    trunk_names,
    write_model,
)

if TYPE_CHECKING:
    from pathlib import Path

WIRINGS = [
    Wiring(feed, recycle, concat)
    for feed in ("pre", "post")
    for recycle in ("pre", "post")
    for concat in ("embedding_hidden", "hidden_embedding")
]

MINIMAL: dict[str, Any] = {
    "mtplx_version": "2.12.2",
    "arch_id": "qwen3-next-mtp",
    "mtp_depth_max": 3,
    "recommended_profile": "sustained",
    "exactness_baseline": {},
    "verified_on": {"timestamp": "2026-08-01T10:00:00Z", "hardware": "Apple M4 Max"},
}
FULL: dict[str, Any] = {
    **MINIMAL,
    "verified_on": {
        "timestamp": "2026-08-01T10:00:00Z",
        "hardware": "Apple M4 Max",
        "machine_arch": "arm64",
        "macos": "26.1",
        "model": "Mac16,6",
    },
    "recommended_generation_mode": "mtp",
    "recommended_generation_mode_reason": "faster",
    "recommended_generation_mode_evidence": {"multiplier": 1.6},
    "recommended_draft_lm_head": {"bits": 4, "group_size": 64, "mode": "affine"},
    "recommended_draft_sampler": {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
    "sampler": {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
    "mtp_contract": {
        "base_hidden_variant": "post_norm",
        "hidden_variant": "post_norm",
        "concat_order": "embedding_hidden",
        "mtp_position_mode": "cache",
        "mtp_quant_bits": None,
        "mtp_quant_group_size": None,
        "mtp_quant_mode": None,
        "mtp_quant_policy": "keep",
        "mtp_prequantized": False,
        "mtp_prequantized_modules": [],
        "mtp_prequantized_module_specs": {},
    },
    "min_engine_version": "2.10.0",
    "runtime_env_overrides": {"MTPLX_FAST_PATH": "1"},
    "speed_evidence": {
        "depth": 3,
        "tok_s": [51.2, 66.0, 77.5, 80.1],
        "acceptance_by_depth": [0.85, 0.7, 0.6],
        "greedy_diagnostic": {"tok_s": 83},
        "forge_verify_rows": [{"depth": 0, "tok_s": 51.2}, {"depth": 3, "tok_s": 80.1}],
        "quality_rejected": [],
        "acceptance_collapsed": False,
        "failure_reasons": [],
        "verdict": "mtp_depth_wins",
        "artifact_fingerprint": "sha256:0123",
    },
    "verification": {"mode": "full-load", "status": "passed", "full_load_verified": True},
    "forge_provenance": {
        "source_repo": "ORG/MODEL",
        "source_sha": "a" * 40,
        "source_format": "bf16_native",
        "forge_recipe": {"body_bits": 4, "body_group_size": 64, "mtp_policy": "keep_bf16"},
        "mtp_contract": {"concat_order": "embedding_hidden"},
        "mtp_contract_calibration": {"rounds": 48},
        "forge_inputs": {"recipe": "optimized-speed"},
        "forged_at": "2026-08-01T09:00:00Z",
        "mtplx_version": "2.12.2",
        "forged_locally": True,
        "published_to_hf": {
            "repo": "ORG/MODEL-MTPLX",
            "revision": "b" * 40,
            "visibility": "public",
            "license_spdx": "Apache-2.0",
            "uploaded_at": "2026-08-01T11:00:00Z",
        },
    },
    "quality_pack": None,
    "served_model_id": "model",
    "public_model_id": "model",
    "model_family": "qwen",
    "mtp_sidecar": "mtp.safetensors",
    "base_trunk": "ORG/MODEL",
    "artifact_role": "runtime",
    "memory_evidence": {"peak_gib": 18.2},
    "vision": {"tensor_count": 300, "prefix": "visual.", "shards": ["model-1.safetensors"]},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path, config_of("qwen3_next"), [*trunk_names(2), *qwen_head_names()])


@pytest.mark.parametrize("contract", [MINIMAL, FULL], ids=["minimal", "full"])
def test_public_artifact_runs_and_is_not_taken_for_verified(
    folder: Path, contract: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MTPLX_FAST_PATH", raising=False)
    assert public_tool.broken_rules(contract) == []
    (folder / CONTRACT_NAME).write_text(json.dumps(contract))
    found = inspect_folder(folder)
    assert found.error is None
    assert found.can_use_head
    assert found.tier is Tier.FAMILY_COMPATIBLE_UNVERIFIED
    assert "MTPLX_FAST_PATH" not in os.environ


def test_public_keys_without_a_meaning_here_are_listed(folder: Path) -> None:
    (folder / CONTRACT_NAME).write_text(json.dumps(FULL))
    warnings = " ".join(inspect_folder(folder).warnings)
    assert "runtime_env_overrides" in warnings
    assert "memory_evidence" in warnings


def test_public_wiring_is_used(folder: Path) -> None:
    (folder / CONTRACT_NAME).write_text(json.dumps(FULL))
    contract = read_contract(folder)
    assert contract is not None
    assert contract.wiring == Wiring("post", "post", "embedding_hidden")


def test_public_contract_is_written_back_as_it_was(folder: Path) -> None:
    (folder / CONTRACT_NAME).write_text(json.dumps(FULL))
    contract = read_contract(folder)
    assert contract is not None
    write_contract(folder, contract)
    assert json.loads((folder / CONTRACT_NAME).read_text()) == FULL


@pytest.mark.parametrize("wiring", WIRINGS)
def test_wiring_survives_the_public_names(wiring: Wiring) -> None:
    public = public_wiring(wiring)
    assert public.mtp_position_mode == "cache"
    assert public.wiring == wiring


@pytest.fixture
def ours(tmp_path: Path) -> dict[str, Any]:
    """What is written of a verified artifact."""
    names = [*trunk_names(2), *mimo_head_names()]
    folder = write_model(tmp_path, config_of("mimo"), names)
    contract = verified_contract(
        folder,
        mtplx_version=__version__,
        min_engine_version=MIN_ENGINE_VERSION,
        recommended_profile=PUBLIC_PROFILE,
        exactness_baseline={"tokens": 6144, "differences": 0},
        verified_on={"device": "cpu"},
        mtp_contract=public_wiring(Wiring(concat="hidden_embedding")).model_dump(),
    )
    write_contract(folder, RuntimeContract.model_validate(contract))
    assert inspect_folder(folder).tier is Tier.VERIFIED
    written: dict[str, Any] = json.loads((folder / CONTRACT_NAME).read_text())
    return written


def test_ours_is_verified_by_the_public_rules(ours: dict[str, Any]) -> None:
    assert public_tool.broken_rules(ours) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"mtplx_version": None}, "mtplx_version"),
        ({"arch_id": "mimo"}, "arch_id"),
        ({"mtp_depth_max": 0}, "mtp_depth_max"),
        ({"recommended_profile": None}, "recommended_profile"),
        ({"exactness_baseline": None}, "exactness_baseline"),
        ({"verified_on": None}, "verified_on"),
        ({"min_engine_version": "2.13.0"}, "min_engine_version"),
        ({"speed_evidence": {**SPEED, "verdict": "no_mtp_depth_beat_ar"}}, "no blocking verdict"),
        ({"verification": {"status": "pending"}}, "no blocking verdict"),
    ],
)
def test_public_rules_tell_a_contract_that_breaks_them(
    ours: dict[str, Any], change: dict[str, Any], rule: str
) -> None:
    assert public_tool.broken_rules({**ours, **change}) == [rule]


def test_no_contract_of_ours_asks_for_more_than_either_engine_has() -> None:
    def numbers(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split("."))

    assert numbers(MIN_ENGINE_VERSION) <= numbers(__version__)
    assert numbers(MIN_ENGINE_VERSION) <= numbers(PUBLIC_ENGINE_VERSION)


def test_runnable_families_have_architectures_that_the_public_tool_runs() -> None:
    runnable = [family for family in FAMILIES if family.runnable]
    assert {arch_id(family) for family in runnable} <= public_tool.ARCHITECTURES
