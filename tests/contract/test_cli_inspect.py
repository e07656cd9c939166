"""`mtplx inspect`: what it shows, as text and as JSON, and its exit codes."""

import json
import shutil
from pathlib import Path

import pytest

from mtplx.contracts.inspection import inspect_folder
from mtplx.demo import demo_model_path
from mtplx.main import execute


def copy_demo_model(folder: Path) -> Path:
    return Path(shutil.copytree(demo_model_path(), folder))


def test_a_sound_model_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["inspect", str(demo_model_path())]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "family-compatible-unverified" in out
    assert "declared+present, 1 layer(s)" in out
    assert "8183, 8185" in out
    assert "4096 tokens" in out


def test_json_is_the_inspection_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["inspect", str(demo_model_path()), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    expected = inspect_folder(demo_model_path()).to_json()
    assert json.loads(out) == json.loads(json.dumps(expected))


def test_a_path_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert execute(["inspect", str(tmp_path / "none")]) == 3
    assert f"error: {tmp_path / 'none'}" in capsys.readouterr().err


def test_a_folder_that_is_no_model_is_refused_in_json_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert execute(["inspect", str(tmp_path), "--json"]) == 3
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["error"]["code"] == "not_a_model"


def test_a_missing_shard_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = copy_demo_model(tmp_path / "model")
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert execute(["inspect", str(folder)]) == 4
    out, err = capsys.readouterr()
    assert "corrupt" in out
    assert "model-00002-of-00002.safetensors" in err
    assert "hint: " in err


def test_an_unknown_type_of_model_is_unsupported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = copy_demo_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config.update(model_type="mystery", architectures=["MysteryForCausalLM"])
    (folder / "config.json").write_text(json.dumps(config))
    assert execute(["inspect", str(folder)]) == 5
    assert "mystery" in capsys.readouterr().out
