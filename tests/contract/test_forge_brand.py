"""`mtplx forge brand`: a contract for a folder as it is, measured, and never one over another."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import Tier, inspect_folder
from mtplx.demo import demo_model_path
from mtplx.main import execute
from mtplx.runtime.loading.folder import load
from tests.contract.test_forge_build import contents, shift_head_norms

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import TinyFactory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(demo_model_path(), tmp_path / "model")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Enough text to find the wiring by, in little time."""
    shipped = files("mtplx.forge.calibrate").joinpath("code.txt").read_text(encoding="utf-8")
    path = tmp_path / "text.py"
    path.write_text(shipped[:5000])
    return path


def test_a_folder_gets_a_contract_with_its_calibration_and_hashes(
    folder: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(folder)
    assert execute(["forge", "brand", str(folder), "--calibration-text", str(text), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((folder / CONTRACT_NAME).read_text())
    assert told["head"]["concat"] == "hidden_embedding"
    assert told["calibration"]["decided_by"]["concat"] == "measured"
    assert "unverified" in told["labels"]
    assert {name: contents(folder)[name] for name in before} == before
    found = inspect_folder(folder, verify_hashes=True)
    assert found.tier is Tier("family-compatible-unverified")
    assert load(folder).has_head

    written = contents(folder)
    assert execute(["forge", "brand", str(folder)]) == 2
    assert "has a contract already" in capsys.readouterr().err
    assert contents(folder) == written


@pytest.mark.slow
def test_norms_that_would_have_to_be_corrected_are_refused(
    folder: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shift_head_norms(folder, -1.0)
    assert execute(["forge", "brand", str(folder), "--calibration-text", str(text)]) == 12
    shown = capsys.readouterr().err
    assert "another convention" in shown
    assert "mtplx forge build" in shown
    assert not (folder / CONTRACT_NAME).exists()


def test_a_folder_without_a_head_gets_none(
    tiny: TinyFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    headless = tiny("mimo", head=False)
    assert execute(["forge", "brand", str(headless)]) == 6
    assert "no MTP head" in capsys.readouterr().err
    assert not (headless / CONTRACT_NAME).exists()


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00"])
def test_text_that_cannot_be_read_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    bad = tmp_path / "bad.txt"
    if content is not None:
        bad.write_bytes(content)
    assert execute(["forge", "brand", str(folder), "--calibration-text", str(bad)]) == 2
    assert "bad.txt" in capsys.readouterr().err
    assert not (folder / CONTRACT_NAME).exists()
