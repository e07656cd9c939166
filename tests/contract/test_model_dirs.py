"""The setting `model_dirs`: what is found there, under which name, and what may be removed."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from mtplx.config_file import set_value
from mtplx.demo import demo_model_path
from mtplx.library import resolve_model
from mtplx.main import execute
from tests.support.fake_model import FakeModel


@pytest.fixture(autouse=True)
def _no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no-cache"))


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A folder of the setting, with a model and a model of an owner."""
    folder = tmp_path / "shelf"
    for name in ("mine", "org/theirs"):
        shutil.copytree(demo_model_path(), folder / name)
    set_value("model_dirs", str(folder))
    return folder


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert execute(["models", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def names(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [row["name"] for row in listed(capsys)["models"]]


def test_models_are_found_by_name_and_by_owner_and_name(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert names(capsys) == ["mine", "org/theirs"]
    assert listed(capsys)["folders"] == [str(shelf)]
    assert resolve_model("mine") == shelf / "mine"
    assert resolve_model("org/theirs") == resolve_model("theirs") == shelf / "org" / "theirs"
    model = FakeModel()
    assert execute(["run", "hi", "--model", "theirs"], load=model.load) == 0
    assert model.load_arguments["path"] == shelf / "org" / "theirs"


def test_a_folder_may_begin_at_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(demo_model_path(), tmp_path / "shelf" / "mine")
    monkeypatch.setenv("MTPLX_MODEL_DIRS", "~/shelf")
    assert names(capsys) == ["mine"]


def test_equal_names_become_paths_and_none_is_chosen_in_silence(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(demo_model_path(), other / "mine")
    monkeypatch.setenv("MTPLX_MODEL_DIRS", os.pathsep.join([str(shelf), str(other)]))
    paths = [str(other / "mine"), str(shelf / "mine")]
    assert names(capsys) == [*paths, "org/theirs"]
    assert execute(["run", "hi", "--model", "mine"], load=FakeModel().load) == 2
    err = capsys.readouterr().err
    assert all(path in err for path in paths)
    assert execute(["remove", "mine", "--yes"]) == 3
    assert execute(["remove", paths[0], "--yes"]) == 0
    assert not (other / "mine").exists()
    assert (shelf / "mine").is_dir()


def test_builds_under_way_hidden_folders_and_links_to_owners_are_left_out(
    shelf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (".hidden", "run-x/artifact"):
        shutil.copytree(demo_model_path(), shelf / name)
    (shelf / "run-x" / "request.json").write_text("{}")
    shutil.copytree(demo_model_path(), tmp_path / "outside" / "linked")
    (shelf / "outside").symlink_to(tmp_path / "outside")
    assert names(capsys) == ["mine", "org/theirs"]


def test_a_folder_that_cannot_be_read_is_told_and_the_others_are_listed(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = str(shelf.parent / "gone")
    monkeypatch.setenv("MTPLX_MODEL_DIRS", os.pathsep.join([gone, str(shelf)]))
    assert listed(capsys)["unreadable"] == [f"{gone} cannot be read: No such file or directory"]
    assert execute(["models"]) == 0
    out, err = capsys.readouterr()
    assert "org/theirs" in out
    assert f"warning: {gone} cannot be read" in err
    assert execute(["models", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_the_same_folder_twice_is_one(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MTPLX_MODEL_DIRS", os.pathsep.join([str(shelf), f"{shelf}/."]))
    assert names(capsys) == ["mine", "org/theirs"]


@pytest.mark.parametrize("name", ["mine", "org/theirs"])
def test_removal_takes_one_model_and_leaves_its_neighbours(
    shelf: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["remove", name, "--yes", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert not (shelf / name).exists()
    assert len(names(capsys)) == 1
    assert not list(shelf.rglob(".*"))


@pytest.mark.parametrize("name", ["org", "../shelf/mine", ".", "", "mine/config.json"])
def test_what_is_no_listed_model_is_not_removed(shelf: Path, name: str) -> None:
    before = sorted(shelf.rglob("*"))
    assert execute(["remove", name, "--yes"]) == 3
    assert sorted(shelf.rglob("*")) == before


def test_settings_that_are_wrong_are_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text("model_dirs = 3\n")
    assert execute(["models"]) == 2
    assert "'model_dirs'" in capsys.readouterr().err
