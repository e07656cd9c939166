"""`mtplx models` and `mtplx remove`: what is listed, what goes, and what always stays."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from mtplx.contracts.folders import models_folder
from mtplx.contracts.inspection import inspect_folder
from mtplx.demo import demo_model_path
from mtplx.library import pending_mark
from mtplx.main import execute
from mtplx.runtime.tuning.conditions import Conditions, conditions_without_mlx
from mtplx.runtime.tuning.record import Depth
from mtplx.runtime.tuning.store import TuningStore, signature
from tests.support.fake_tuning import a_record

OLD, NEW = "a" * 40, "b" * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub for the test alone; it is not there yet."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def model() -> Path:
    """The demo model as `demo` in the models folder."""
    return Path(shutil.copytree(demo_model_path(), models_folder() / "demo"))


def add_snapshot(
    cache: Path, commit: str, *, is_main: bool = False, repo: str = "org/demo"
) -> Path:
    """The demo model in the cache, laid out as the hub's library does; one file is its own."""
    repository = cache / f"models--{repo.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    for folder in (repository / "blobs", repository / "refs", snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    for path in demo_model_path().iterdir():
        own = path.name == "README.md"
        blob = repository / "blobs" / (f"{path.name}-{commit}" if own else path.name)
        shutil.copyfile(path, blob)
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    if is_main:
        (repository / "refs" / "main").write_text(commit)
    return snapshot


def listing(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `mtplx models --json` gives."""
    assert execute(["models", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)  # type: ignore[no-any-return]


def names(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [item["name"] for item in listing(capsys)["models"]]


def remove(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = execute(["remove", *arguments, "--json"])
    out, err = capsys.readouterr()
    assert err == ""
    return code, json.loads(out)


def tuned(folder: Path, depth: Depth, **changes: str | int | None) -> None:
    """Save a result for the model in `folder` on this machine, but for `changes` of its conditions."""
    inspection = inspect_folder(folder)
    here: Conditions = {"chip": "A chip", **conditions_without_mlx(inspection, None)}
    record = a_record(depth=depth, conditions={**here, **changes})
    TuningStore.of_this_user().save(record, inspection, signature(inspection))


# Listing


def test_nothing_at_all_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["models"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "mtplx pull" in err
    assert names(capsys) == []


def test_models_of_both_places_are_listed(
    cache: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = add_snapshot(cache, OLD)
    rows = {item["name"]: item for item in listing(capsys)["models"]}
    size = sum(path.stat().st_size for path in demo_model_path().iterdir())
    assert {name: item["path"] for name, item in rows.items()} == {
        "demo": str(model),
        "org/demo": str(snapshot),
    }
    assert {item["size_bytes"] for item in rows.values()} == {size}
    assert {item["family"] for item in rows.values()} == {"mimo"}
    assert {item["tier"] for item in rows.values()} == {"family-compatible-unverified"}
    assert execute(["models"]) == 0
    out = capsys.readouterr().out
    assert "org/demo" in out
    assert str(snapshot) in out
    assert "family-compatible-unverified" in out


def test_a_broken_model_is_listed_with_its_reason(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "config.json").write_text("{")
    (item,) = listing(capsys)["models"]
    assert item["can_run"] is False
    assert "config.json" in item["error"]["message"]
    assert execute(["models"]) == 0
    assert item["error"]["message"] in capsys.readouterr().out


def test_a_folder_without_all_its_shards_is_listed_apart(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "model-00002-of-00002.safetensors").unlink()
    assert names(capsys) == []
    assert execute(["models"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Not complete")
    assert "model-00002-of-00002.safetensors" in out


def test_a_snapshot_of_small_files_only_is_listed_apart(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = add_snapshot(cache, OLD)
    for path in snapshot.glob("*.safetensors"):
        path.resolve().unlink()
        path.unlink()
    answer = listing(capsys)
    assert answer["models"] == []
    assert [item["name"] for item in answer["incomplete"]] == ["org/demo"]
    assert execute(["models"]) == 0
    assert f"mtplx pull org/demo --revision {OLD}" in capsys.readouterr().out


def test_a_cache_that_makes_no_sense_is_told(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_snapshot(cache, OLD)
    broken = add_snapshot(cache, OLD, repo="org/broken")
    (broken / "config.json").resolve().unlink()
    (cache / "datasets--org--words").mkdir()
    (cache / "models--org--empty").mkdir()
    answer = listing(capsys)
    assert [item["name"] for item in answer["models"]] == ["org/demo"]
    assert len(answer["unreadable"]) == 2
    assert execute(["models"]) == 0
    assert "models--org--broken" in capsys.readouterr().err


def test_other_things_in_the_models_folder_are_not_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(demo_model_path(), models_folder() / ".demo.pulling")
    (models_folder() / "notes").mkdir()
    (models_folder() / "file").write_text("x")
    (models_folder() / "gone").symlink_to("nowhere")
    assert names(capsys) == []


def test_the_tuned_depth_is_listed_while_it_holds(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listing(capsys)["models"][0]["tuned_depth"] is None
    assert execute(["models"]) == 0
    assert "family-compatible-unverified, not tuned" in capsys.readouterr().out
    tuned(model, 3)
    assert listing(capsys)["models"][0]["tuned_depth"] == 3
    assert execute(["models"]) == 0
    assert "family-compatible-unverified, tuned: depth 3" in capsys.readouterr().out
    tuned(model, "auto")
    assert listing(capsys)["models"][0]["tuned_depth"] == "auto"
    os.utime(model / "config.json")
    assert listing(capsys)["models"][0]["tuned_depth"] is None


def test_a_tuned_depth_of_other_versions_or_options_is_not_listed(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(model, 3, mlx="0.1.0")
    assert listing(capsys)["models"][0]["tuned_depth"] is None
    tuned(model, 3)
    monkeypatch.setenv("MTPLX_KV_BITS", "8")
    assert listing(capsys)["models"][0]["tuned_depth"] is None


@pytest.mark.usefixtures("model")
def test_tuning_results_that_cannot_be_read_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    file = TuningStore.of_this_user().path
    file.parent.mkdir()
    file.write_text("{")
    answer = listing(capsys)
    assert [item["name"] for item in answer["models"]] == ["demo"]
    (text,) = answer["unreadable"]
    assert str(file) in text
    assert execute(["models"]) == 0
    assert str(file) in capsys.readouterr().err


# Removing


def test_a_model_folder_is_removed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = sum(path.stat().st_size for path in model.iterdir())
    code, answer = remove(capsys, "demo", "--yes")
    assert (code, answer["freed_bytes"], answer["path"]) == (0, size, str(model))
    assert list(models_folder().iterdir()) == []


def test_a_dry_run_removes_nothing(
    cache: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = add_snapshot(cache, OLD)
    code, answer = remove(capsys, "demo", "--dry-run")
    assert (code, answer["dry_run"], answer["paths"]) == (0, True, [str(model)])
    assert execute(["remove", "org/demo", "--dry-run"]) == 0
    assert "Would remove org/demo" in capsys.readouterr().out
    assert (model / "config.json").exists()
    assert (snapshot / "config.json").exists()


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_removal_has_to_be_confirmed(
    model: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["remove", "demo", *options]) == 2
    assert "--yes" in "".join(capsys.readouterr())
    assert (model / "config.json").exists()


@pytest.mark.parametrize(("answer", "code"), [("n\n", 130), ("y\n", 0)])
def test_a_person_is_asked(
    model: Path, answer: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_args, **_options: answer == "y\n")
    assert execute(["remove", "demo"]) == code
    assert model.exists() == (code != 0)


@pytest.mark.parametrize(
    "name", ["../outside", "demo/../../outside", "..", ".", "", "/", "*", "notes", "demo/"]
)
def test_only_listed_names_are_removed(
    model: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = Path(shutil.copytree(demo_model_path(), models_folder().parent / "outside"))
    (models_folder() / "notes").mkdir()
    code, answer = remove(capsys, name, "--yes")
    assert (code, answer["error"]["code"]) == (3, "model_not_found")
    assert all(folder.exists() for folder in (model, outside, models_folder() / "notes"))


def test_a_path_is_no_name(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert remove(capsys, str(model), "--yes")[0] == 3
    assert model.exists()


def test_what_links_inside_a_folder_lead_to_survives(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").write_text("mine")
    (model / "to-folder").symlink_to(target)
    (model / "to-file").symlink_to(target / "file")
    code, answer = remove(capsys, "demo", "--yes")
    assert code == 0
    assert not model.exists()
    assert (target / "file").read_text() == "mine"
    assert answer["freed_bytes"] < sum(p.stat().st_size for p in demo_model_path().iterdir()) + 999


def test_a_linked_model_loses_its_link_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Path(shutil.copytree(demo_model_path(), tmp_path / "elsewhere"))
    models_folder().mkdir()
    (models_folder() / "linked").symlink_to(target)
    assert names(capsys) == ["linked"]
    code, answer = remove(capsys, "linked", "--yes")
    assert (code, answer["freed_bytes"]) == (0, 0)
    assert names(capsys) == []
    assert (target / "config.json").exists()


def test_a_folder_that_must_not_be_changed_is_told(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _target: Path) -> Path:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "rename", refuse)
    code, answer = remove(capsys, "demo", "--yes")
    assert code == 2
    assert "Permission denied" in answer["error"]["message"]
    assert (model / "config.json").exists()


def test_a_removal_that_was_stopped_is_ended_by_the_next_of_that_name(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model, model.with_name(".demo.removing"))
    assert remove(capsys, "demo", "--yes")[0] == 0
    assert list(models_folder().iterdir()) == []


def test_the_only_snapshot_goes_with_its_repository(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_snapshot(cache, OLD, is_main=True)
    copies = [f"org/copy-{number}" for number in range(5)]
    for copy in copies:
        add_snapshot(cache, OLD, repo=copy)
    mark = pending_mark("org/demo", OLD)
    mark.parent.mkdir(parents=True)
    mark.touch()
    size = sum(path.stat().st_size for path in demo_model_path().iterdir())
    code, answer = remove(capsys, "org/demo", "--yes")
    assert (code, answer["freed_bytes"]) == (0, size)
    assert names(capsys) == copies
    assert not mark.exists()


def test_an_older_snapshot_takes_only_its_own_files(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_snapshot(cache, OLD)
    new = add_snapshot(cache, NEW, is_main=True)
    assert names(capsys) == ["org/demo", "org/demo@aaaaaaaa"]
    code, answer = remove(capsys, "org/demo@aaaaaaaa", "--yes")
    assert code == 0
    assert answer["freed_bytes"] == (demo_model_path() / "README.md").stat().st_size
    assert names(capsys) == ["org/demo"]
    assert all(path.exists() for path in new.iterdir())


@pytest.mark.parametrize("others", [(), (NEW,)])
def test_what_links_of_a_snapshot_lead_to_survives(
    cache: Path, tmp_path: Path, others: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = add_snapshot(cache, OLD)
    for commit in others:
        add_snapshot(cache, commit, is_main=True)
    (tmp_path / "precious").write_text("mine")
    (snapshot / "extra.json").symlink_to(tmp_path / "precious")
    name = "org/demo@aaaaaaaa" if others else "org/demo"
    code, answer = remove(capsys, name, "--yes")
    assert (tmp_path / "precious").read_text() == "mine"
    if others:
        assert (code, answer["error"]["code"]) == (2, "usage")
        assert str(tmp_path / "precious") in answer["error"]["message"]
        assert snapshot.exists()
    else:
        assert code == 0
        assert not snapshot.exists()


def test_blobs_that_lie_elsewhere_are_not_removed(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_snapshot(cache, OLD)
    add_snapshot(cache, NEW, is_main=True)
    blobs = cache / "models--org--demo" / "blobs"
    moved = blobs.rename(tmp_path / "moved")
    blobs.symlink_to(moved)
    before = sorted(path.name for path in moved.iterdir())
    code, answer = remove(capsys, "org/demo@aaaaaaaa", "--yes")
    assert (code, answer["error"]["code"]) == (2, "usage")
    assert sorted(path.name for path in moved.iterdir()) == before


def test_what_the_library_could_not_remove_is_told(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_snapshot(cache, OLD)
    monkeypatch.setattr("huggingface_hub.DeleteCacheStrategy.execute", lambda _strategy: None)
    code, answer = remove(capsys, "org/demo", "--yes")
    assert (code, answer["error"]["code"]) == (2, "usage")
    assert "could not be removed" in answer["error"]["message"]
