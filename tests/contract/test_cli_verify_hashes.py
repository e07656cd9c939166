"""`--verify-hashes` of `run`, `chat` and `inspect`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.inspection import Tier
from mtplx.main import execute
from tests.support.contracts import write_verified
from tests.support.fake_model import FakeModel
from tests.support.header_models import config_of, mimo_head_names, trunk_names, write_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    names = [*trunk_names(2), *mimo_head_names()]
    return write_verified(write_model(tmp_path / "model", config_of("mimo"), names))


def inspect(artifact: Path, *flags: str) -> int:
    return execute(["inspect", str(artifact), "--json", *flags])


@pytest.mark.parametrize("flags", [[], ["--verify-hashes"]])
def test_run_hands_it_to_the_loader(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel()
    assert execute(["run", "hi", "--model", "m", *flags], load=model.load) == 0
    assert model.load_arguments["verify_hashes"] is bool(flags)
    assert capsys.readouterr().out


def test_run_without_recorded_hashes_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_model(tmp_path / "m", config_of("mimo"), [*trunk_names(2), *mimo_head_names()])
    assert execute(["run", "hi", "--model", str(folder), "--verify-hashes"]) == 2
    assert "records no hashes" in capsys.readouterr().err


def test_inspect_reads_every_byte_only_when_asked(
    artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect(artifact) == inspect(artifact, "--verify-hashes") == 0
    path = artifact / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert inspect(artifact) == 0
    capsys.readouterr()
    assert inspect(artifact, "--verify-hashes") == 4
    shown = json.loads(capsys.readouterr().out)
    assert shown["tier"] == Tier.CORRUPT
    assert "model.safetensors" in shown["error"]["message"]


def test_inspect_says_which_check_was_made(
    artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect(artifact)
    assert "weight headers" in json.loads(capsys.readouterr().out)["reasons"][-1]
    inspect(artifact, "--verify-hashes")
    assert "every byte" in json.loads(capsys.readouterr().out)["reasons"][-1]
