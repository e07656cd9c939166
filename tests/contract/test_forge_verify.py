"""`mtplx forge verify`: what it refuses at once, what it stamps, and what a replay finds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.runtime_contract import read_contract
from mtplx.demo import demo_model_path
from mtplx.main import execute
from tests.contract.test_forge_build import build

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

QUICK = ("--depths", "1", "--no-speed")


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON object on standard output."""
    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("depths", ["", "0", "9", "1,1", "deep", "1.5"])
def test_depths_that_are_none_are_refused(capsys: pytest.CaptureFixture[str], depths: str) -> None:
    assert execute(["forge", "verify", str(demo_model_path()), "--depths", depths]) == 2
    assert "depths" in capsys.readouterr().err


def test_a_folder_without_a_contract_cannot_be_stamped_or_replayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = str(demo_model_path())
    assert execute(["forge", "verify", folder, "--stamp"]) == 2
    assert "no contract of mtplx to stamp" in capsys.readouterr().err
    assert execute(["forge", "verify", folder, "--replay"]) == 2
    assert "no contract that records a verification" in capsys.readouterr().err
    assert execute(["forge", "verify", folder, "--replay", "--stamp"]) == 2
    assert "Give one of them" in capsys.readouterr().err


def test_folders_that_have_nothing_to_verify(
    tiny: TinyFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["forge", "verify", str(tiny("mimo", head=False)), *QUICK]) == 6
    assert execute(["forge", "verify", str(tmp_path / "nowhere"), *QUICK]) == 3
    broken = tiny("mimo")
    next(broken.glob("*.safetensors")).unlink()
    assert execute(["forge", "verify", str(broken), *QUICK]) == 4
    assert "Traceback" not in capsys.readouterr().err


def test_a_verification_is_stamped_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = build(demo_model_path(), tmp_path).path
    assert execute(["forge", "verify", str(artifact), "--stamp", "--json", *QUICK]) == 0
    found = told(capsys)
    assert found["verdict"] == "exactness_passed"
    assert found["stamped"] is True
    # Nine prompts, greedy and two seeds, one depth, 48 tokens each.
    assert found["exactness"]["tokens"] == 9 * 3 * 48
    contract = read_contract(artifact)
    assert contract is not None
    assert contract.exactness is not None
    assert contract.exactness.holds
    assert contract.mtp_depth_max == 1
    assert "unverified" in contract.labels
    assert str(tmp_path) not in (artifact / CONTRACT_NAME).read_text()

    assert execute(["forge", "verify", str(artifact), "--replay", "--json"]) == 0
    assert told(capsys)["replay"] == {"same": True, "differences": [], "other_conditions": []}


@pytest.mark.slow
def test_a_replay_names_what_came_out_differently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = build(demo_model_path(), tmp_path).path
    assert execute(["forge", "verify", str(artifact), "--stamp", "--json", *QUICK]) == 0
    recorded = json.loads((artifact / CONTRACT_NAME).read_text())
    recorded["exactness"]["tested_on"]["plain_sha256"] = "0" * 64
    recorded["exactness"]["tested_on"]["versions"]["mlx"] = "0.1"
    (artifact / CONTRACT_NAME).write_text(json.dumps(recorded))
    assert execute(["forge", "verify", str(artifact), "--replay"]) == 0
    shown = capsys.readouterr().out
    assert "another result" in shown
    assert "other text than recorded" in shown
    assert "0.1" in shown


def test_changed_weights_are_not_stamped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = build(demo_model_path(), tmp_path).path
    weights = artifact / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    before = (artifact / CONTRACT_NAME).read_bytes()
    assert execute(["forge", "verify", str(artifact), "--stamp", *QUICK]) == 4
    assert (artifact / CONTRACT_NAME).read_bytes() == before
    assert "Traceback" not in capsys.readouterr().err
