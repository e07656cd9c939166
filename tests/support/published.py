"""An artifact that is fit to be published, with evidence of every kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mtplx.contracts.identity import CONTRACT_NAME
from tests.support.contracts import verified_contract
from tests.support.tiny import build_tiny

if TYPE_CHECKING:
    from pathlib import Path

SPEED: dict[str, Any] = {
    "depth": 2,
    "tok_s": 61.5,
    "ar_tok_s": 30.0,
    "gain": 2.05,
    "gain_interval": [1.96, 2.11],
    "acceptance_by_depth": [0.9, 0.72],
    "verdict": "mtp_depth_wins",
    "forge_verify_rows": [
        {"depth": 0, "tok_s": 30.0, "multiplier_vs_ar": 1.0, "acceptance_by_position": []},
        {
            "depth": 1,
            "tok_s": 50.1,
            "multiplier_vs_ar": 1.67,
            "gain_interval": [1.6, 1.74],
            "acceptance_by_position": [0.9],
        },
        {
            "depth": 2,
            "tok_s": 61.5,
            "multiplier_vs_ar": 2.05,
            "gain_interval": [1.96, 2.11],
            "acceptance_by_position": [0.9, 0.72],
        },
    ],
    "conditions": {"prompts": ["a"] * 12, "repetitions": 5, "back_end": "cpu"},
}
PROVENANCE: dict[str, Any] = {
    "source_repo": "Org/Source-1B",
    "source_sha": "0123456789abcdef0123456789abcdef01234567",
    "source_format": "bf16_native",
    "forge_recipe": {
        "name": "optimized-speed",
        "body_bits": 4,
        "body_group_size": 64,
        "body_mode": "affine",
        "mtp_policy": "keep_bf16",
        "module_overrides": {"lm_head": {"bits": 8, "group_size": 64}, "router": "keep"},
    },
    "versions": {"mtplx": "0.1.0", "mlx": "0.32.4"},
}
CALIBRATION: dict[str, Any] = {
    "scores": [{"feed": "pre"}, {"feed": "post"}],
    "text": {"tokens": 4096, "domains": ["code", "prose"]},
    "agreement": [0.91, 0.74],
}
_APACHE = "Apache License\nVersion 2.0, January 2004\nhttp://www.apache.org/licenses/\n"


def make_artifact(folder: Path, **changes: Any) -> Path:
    """A verified artifact with a licence; ``changes`` replace keys of its contract."""
    build_tiny(folder, "mimo", layout="mlx")
    (folder / "LICENSE").write_text(_APACHE)
    evidence = {
        "mtplx_version": "0.1.0",
        "speed_evidence": SPEED,
        "forge_provenance": PROVENANCE,
        "calibration": CALIBRATION,
        "verified_on": {"device": "cpu", "machine": "test bench"},
    }
    write_contract(folder, verified_contract(folder, **{**evidence, **changes}))
    return folder


def write_contract(folder: Path, contract: dict[str, Any]) -> None:
    """Put `contract` into the folder as it is."""
    (folder / CONTRACT_NAME).write_text(json.dumps(contract))


def read_contract(folder: Path) -> dict[str, Any]:
    """The contract in the folder, as plain JSON."""
    found: dict[str, Any] = json.loads((folder / CONTRACT_NAME).read_text())
    return found
