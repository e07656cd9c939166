"""Names of models: what a text means, and when it means too much."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from mtplx.contracts.errors import ModelNotFoundError, UsageError
from mtplx.contracts.folders import models_folder
from mtplx.demo import demo_model_path
from mtplx.library import FoundModel, Library, bytes_in, pending_mark, resolve_model
from mtplx.main import execute
from mtplx.opening import choose_folder
from mtplx.screen import Screen

COMMIT = "c" * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub for the test alone, and a working folder without models."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


def add_folder(name: str) -> Path:
    return Path(shutil.copytree(demo_model_path(), models_folder() / name))


def add_snapshot(cache: Path, repo: str) -> Path:
    snapshot = cache / f"models--{repo.replace('/', '--')}" / "snapshots" / COMMIT
    return Path(shutil.copytree(demo_model_path(), snapshot))


def library(*names: str) -> Library:
    """Snapshots are those with a slash."""
    return Library(
        tuple(
            FoundModel(name, Path(name), 1, repo=name.partition("@")[0] if "/" in name else None)
            for name in names
        )
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a/x", ["a/x"]),
        ("a/x@1", ["a/x@1"]),
        ("x", ["a/x", "b/x"]),
        ("y", ["b/y"]),
        ("c--z", ["c--z"]),
        ("c/z", ["c--z", "c/z"]),
        ("w", ["w"]),
        ("d/v", ["d/v@1", "d/v@2"]),
        ("a/X", []),
        ("", []),
    ],
)
def test_names_are_exact_or_without_the_owner(text: str, meant: list[str]) -> None:
    known = library("a/x", "a/x@1", "b/x", "b/y", "c--z", "c/z", "d/v@1", "d/v@2", "w", "e/w")
    assert [model.name for model in known.matching(text)] == meant


def test_a_path_wins_over_a_name(tmp_path: Path) -> None:
    named = add_folder("demo")
    assert resolve_model("demo") == named
    (tmp_path / "work" / "demo").mkdir()
    assert resolve_model("demo") == Path("demo")


def test_a_repository_is_found_in_the_cache(cache: Path) -> None:
    snapshot = add_snapshot(cache, "org/demo")
    assert resolve_model("org/demo") == snapshot
    assert resolve_model("hf:org/demo") == snapshot
    assert resolve_model("demo") == snapshot


def test_an_ambiguous_name_lists_the_choices(cache: Path) -> None:
    places = [add_snapshot(cache, "a/demo"), add_snapshot(cache, "b/demo")]
    with pytest.raises(UsageError, match=r"a/demo .* or b/demo ") as caught:
        resolve_model("demo")
    assert all(str(place) in str(caught.value) for place in places)


def test_an_unknown_name_says_how_to_get_one() -> None:
    with pytest.raises(ModelNotFoundError, match=r"org/none does not exist.*mtplx pull"):
        resolve_model("org/none")


@pytest.mark.parametrize("text", ["/none/at/all", "./none", "../none"])
def test_what_is_written_as_a_path_is_no_name(text: str) -> None:
    assert resolve_model(text) == Path(text)


@pytest.mark.parametrize("text", ["x" * 5000, "~nobody-of-that-name/x"])
def test_impossible_paths_end_in_our_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["inspect", text]) == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_a_pull_under_way_is_not_opened(cache: Path) -> None:
    snapshot = add_snapshot(cache, "org/demo")
    mark = pending_mark("org/demo", COMMIT)
    mark.parent.mkdir(parents=True)
    mark.touch()
    with pytest.raises(UsageError, match=r"not complete.*mtplx pull org/demo"):
        resolve_model("org/demo")
    assert resolve_model(str(snapshot)) == snapshot


def test_commands_take_names(capsys: pytest.CaptureFixture[str]) -> None:
    folder = add_folder("org--demo")
    assert choose_folder(Screen(quiet=True), "org/demo") == folder
    assert execute(["inspect", "org--demo"]) == 0
    assert str(folder) in capsys.readouterr().out


def test_bytes_of_a_folder_count_each_file_once_and_no_target(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a").write_bytes(b"x" * 1000)
    os.link(folder / "sub" / "a", folder / "b")
    (tmp_path / "outside").write_bytes(b"x" * 10**6)
    (folder / "link").symlink_to("../outside")
    assert bytes_in(folder) == 1000 + len("../outside")
