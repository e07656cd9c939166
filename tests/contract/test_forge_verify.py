"""`mtplx forge verify`: what it refuses at once, what it stamps, and what a replay finds."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import UsageError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.runtime_contract import RuntimeContract, read_contract
from mtplx.demo import demo_model_path
from mtplx.forge.brand import stamp
from mtplx.forge.verify.settings import VerifySettings
from mtplx.forge.verify.verify import Verification, verify_artifact
from mtplx.main import execute
from tests.contract.test_forge_build import build
from tests.exact.test_verify import keeps_too_many

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory

SMALL = VerifySettings(
    depths=(1,),
    prompts=("code-1",),
    seeds=(1,),
    exact_tokens=8,
    law_runs=4096,
    repeats=1,
    max_tokens=8,
)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON object on standard output."""
    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def stamped(artifact: Path) -> RuntimeContract:
    contract = read_contract(artifact)
    assert contract is not None
    return contract


def answer_with(monkeypatch: pytest.MonkeyPatch, settings: VerifySettings, **parts: Any) -> None:
    """Let the command verify with small settings, and with other parts."""

    def verify(folder: Path, _settings: VerifySettings, report: Any) -> Verification:
        return verify_artifact(folder, settings, report, **parts)

    monkeypatch.setattr("mtplx.forge.verify.verify.verify_artifact", verify)


@pytest.fixture
def artifact(shared_tiny: TinyFactory, tmp_path: Path) -> Path:
    """One that nothing has verified yet."""
    return build(shared_tiny("mimo", vocab=512), tmp_path).path


@pytest.fixture(scope="module")
def verified_once(shared_tiny: TinyFactory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    artifact = build(shared_tiny("mimo", vocab=512), tmp_path_factory.mktemp("verified")).path
    stamp(artifact, verify_artifact(artifact, SMALL))
    return artifact


@pytest.fixture
def verified(verified_once: Path, tmp_path: Path) -> Path:
    """One whose contract records a small verification with speed."""
    return shutil.copytree(verified_once, tmp_path / "verified")


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
    assert execute(["forge", "verify", folder, "--replay", "--depths", "1"]) == 2
    assert "--depths gives others" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [(), ("--stamp",), ("--replay",)])
def test_folders_that_have_nothing_to_verify(
    tiny: TinyFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    assert execute(["forge", "verify", str(tiny("mimo", head=False)), *flags]) == 6
    assert "no MTP head that can be verified" in capsys.readouterr().err
    assert execute(["forge", "verify", str(tmp_path / "nowhere"), *flags]) == 3
    broken = tiny("mimo")
    next(broken.glob("*.safetensors")).unlink()
    assert execute(["forge", "verify", str(broken), *flags]) == 4
    assert "Traceback" not in capsys.readouterr().err


def test_a_verification_is_stamped(verified: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stamped(verified).speed_evidence is not None
    flags = ("--stamp", "--depths", "2", "--no-speed")
    assert execute(["forge", "verify", str(verified), *flags]) == 0
    shown = capsys.readouterr()
    assert "evidence of speed is dropped" in shown.err
    assert "exactness_passed" in shown.out
    # Nine prompts, greedy and two seeds, one depth, 32 tokens each.
    assert f"{9 * 3 * 32} tokens compared, 0 differences" in shown.out
    contract = stamped(verified)
    assert contract.exactness is not None
    assert contract.exactness.holds
    assert contract.mtp_depth_max == 2
    assert contract.speed_evidence is None
    assert "unverified" in contract.labels
    assert str(verified.parent) not in (verified / CONTRACT_NAME).read_text()


def test_a_replay_finds_the_same_again(verified: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speed = stamped(verified).speed_evidence
    assert speed is not None
    assert execute(["forge", "verify", str(verified), "--replay", "--json"]) == 13
    found = told(capsys)
    assert found["replay"] == {"same": True, "differences": [], "other_conditions": []}
    assert found["verdict"] == speed.verdict
    assert found["settings"] == SMALL.to_json()
    assert [row["depth"] for row in found["rows"]] == [0, 1]
    assert found["stamped"] is False


def test_a_replay_without_speed_names_what_came_out_differently(
    verified: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = json.loads((verified / CONTRACT_NAME).read_text())
    recorded["exactness"]["tested_on"]["plain_sha256"] = "0" * 64
    recorded["exactness"]["tested_on"]["versions"]["mlx"] = "0.1"
    (verified / CONTRACT_NAME).write_text(json.dumps(recorded))
    # Other versions and another text are told; the verdict of today decides.
    assert execute(["forge", "verify", str(verified), "--replay", "--no-speed"]) == 0
    shown = capsys.readouterr().out
    assert "another result" in shown
    assert "other text than recorded" in shown
    assert "0.1" in shown
    assert "tok/s" not in shown


def test_speed_is_shown_depth_by_depth(
    verified: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, SMALL)
    assert execute(["forge", "verify", str(verified), "--repeats", "1"]) == 13
    shown = capsys.readouterr()
    assert "1 repeats can't show that a depth is faster; 7 or more can" in shown.err
    lines = shown.out.splitlines()
    assert any("plain " in line and "tok/s" in line for line in lines)
    assert any("depth 1 " in line and "accepted" in line for line in lines)


def test_an_inexact_artifact_exits_with_ten_and_says_where(
    artifact: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, SMALL, make=keeps_too_many)
    assert execute(["forge", "verify", str(artifact), "--stamp", "--json"]) == 10
    found = told(capsys)
    assert (found["verdict"], found["exit_code"]) == ("exactness_failed", 10)
    assert "rejection does not follow its law after" in found["failure_reasons"][0]
    assert found["rows"] == []
    exactness = stamped(artifact).exactness
    assert exactness is not None
    assert not exactness.holds


def test_as_many_repeats_as_the_depths_need_unless_told(
    artifact: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[VerifySettings] = []

    def record(_folder: Path, settings: VerifySettings, _progress: object) -> Verification:
        asked.append(settings)
        raise UsageError("seen")

    monkeypatch.setattr("mtplx.forge.verify.verify.verify_artifact", record)
    for flags in ((), ("--depths", "1,2,3,4,5,6,7,8"), ("--repeats", "3", "--max-tokens", "40")):
        assert execute(["forge", "verify", str(artifact), *flags]) == 2
    assert [(s.depths[-1], s.repeats, s.max_tokens) for s in asked] == [
        (3, 7, 48),
        (8, 9, 48),
        (3, 3, 40),
    ]
    assert capsys.readouterr().err.count("can't show") == 1


def test_changed_weights_are_not_stamped(
    artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = artifact / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    before = (artifact / CONTRACT_NAME).read_bytes()
    assert execute(["forge", "verify", str(artifact), "--stamp"]) == 4
    assert (artifact / CONTRACT_NAME).read_bytes() == before
    assert "Traceback" not in capsys.readouterr().err
