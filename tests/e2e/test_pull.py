"""`mtplx pull`: judged before, fetched and verified, and every way it can be stopped."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from huggingface_hub import constants, scan_cache_dir

from mtplx import pulling
from mtplx.demo import demo_model_path
from mtplx.library import find_models, resolve_model
from mtplx.main import execute

if TYPE_CHECKING:
    from tests.support.hub_server import HubServer

REPO = "org/demo"
SHARDS = "storage/"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def pull(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run `mtplx pull ... --json`; its exit code and its object."""
    code = execute(["pull", REPO, *arguments, "--json"])
    out, err = capsys.readouterr()
    assert err == ""
    return code, json.loads(out)


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """The names that `mtplx models --json` gives."""
    assert execute(["models", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    return {key: [item["name"] for item in answer[key]] for key in ("models", "incomplete")}


@pytest.fixture
def commit(hub: HubServer) -> str:
    """The commit of a repository with the demo model and a file of no use to mtplx."""
    hub.add(REPO, demo_model_path())
    return hub.push(REPO, {"modeling_demo.py": b"raise SystemExit", "pytorch_model.bin": b"x" * 99})


def test_a_pulled_model_is_whole_and_found_by_its_name(
    hub: HubServer, commit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = pull(capsys)
    assert code == 0
    assert (answer["commit"], answer["dry_run"]) == (commit, False)
    assert (answer["family"], answer["tier"]) == ("mimo", "family-compatible-unverified")
    assert contents(Path(answer["path"])) == {
        name: data for name, data in contents(demo_model_path()).items() if name in answer["files"]
    }
    assert hub.asked("modeling_demo|pytorch_model") == []
    assert resolve_model(REPO) == resolve_model("demo") == Path(answer["path"])
    assert listed(capsys) == {"models": [REPO], "incomplete": []}
    assert execute(["inspect", REPO]) == 0


def test_sizes_family_and_next_step_are_shown(
    commit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["pull", f"hf:{REPO}", "--yes"]) == 0
    out, err = capsys.readouterr()
    assert "to fetch" in err
    assert "MiB" in err
    assert commit in out
    assert f"mtplx run --model {REPO}" in out


def test_a_dry_run_tells_all_and_keeps_nothing(
    hub: HubServer, commit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = sum(path.stat().st_size for path in demo_model_path().glob("*.safetensors"))
    code, answer = pull(capsys, "--dry-run")
    assert code == 0
    assert answer["dry_run"] is True
    assert answer["commit"] == commit
    assert answer["download_bytes"] == answer["total_bytes"] > weights
    assert answer["family"] == "mimo"
    assert hub.bytes_sent("safetensors$") + hub.bytes_sent(SHARDS) < weights / 10
    assert not Path(constants.HF_HUB_CACHE).exists()
    assert not Path(answer["path"]).exists()


def test_a_second_pull_fetches_nothing(
    hub: HubServer, commit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pull(capsys)
    hub.forget_requests()
    code, answer = pull(capsys)
    assert (code, answer["download_bytes"], answer["commit"]) == (0, 0, commit)
    whole = sum(path.stat().st_size for path in demo_model_path().glob("*.safetensors"))
    assert hub.bytes_sent(SHARDS) < whole / 10


def test_a_revision_is_pulled_beside_the_main_one(
    hub: HubServer, commit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = hub.push(REPO, {"generation_config.json": b'{"temperature": 0.5}'}, branch="dev")
    main, dev = pull(capsys)[1], pull(capsys, "--revision", "dev")[1]
    assert (main["commit"], dev["commit"]) == (commit, other)
    assert {model.name for model in find_models().models} == {REPO, f"{REPO}@{other[:8]}"}
    assert resolve_model(REPO) == Path(main["path"])
    assert resolve_model(f"{REPO}@{other[:8]}") == Path(dev["path"])
    refs = {ref for repo in scan_cache_dir(constants.HF_HUB_CACHE).repos for ref in repo.refs}
    assert refs == {"main", "dev"}


@pytest.mark.usefixtures("commit")
def test_a_newer_commit_takes_over_the_name(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pull(capsys)
    hub.push(REPO, {"generation_config.json": b'{"temperature": 0.5}'})
    new = pull(capsys)[1]
    assert 0 < new["download_bytes"] < 100
    assert resolve_model(REPO) == Path(new["path"])


@pytest.mark.usefixtures("commit")
def test_a_body_that_breaks_off_is_continued(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = hub.fail(SHARDS, method="GET", truncate=1000, after=2)
    code, answer = pull(capsys)
    assert code == 0
    assert cut.seen > 3
    shard = "model-00001-of-00002.safetensors"
    assert (Path(answer["path"]) / shard).read_bytes() == (demo_model_path() / shard).read_bytes()


@pytest.mark.parametrize("into", ["cache", "folder"])
@pytest.mark.usefixtures("commit")
def test_an_incomplete_pull_is_no_model_and_goes_on(
    hub: HubServer, tmp_path: Path, into: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [] if into == "cache" else ["--dir", str(tmp_path)]
    first = demo_model_path() / "model-00001-of-00002.safetensors"
    second = _blob_of("model-00002")
    # The heads of both shards are read before the transfer. Shards are fetched side by side, and the one that fails
    # stops the other: the first gets time to arrive.
    hub.fail(second, method="GET", after=1, truncate=10, hang_s=3.0)
    broken = hub.fail(second, method="GET", times=None, after=1, truncate=10)
    code, answer = pull(capsys, *options)
    assert (code, answer["error"]["code"]) == (11, "download")
    assert listed(capsys)["models"] == []
    if into == "cache":
        assert listed(capsys)["incomplete"] == [REPO]
        assert execute(["run", "--model", REPO, "Hello"]) == 2
        assert f"mtplx pull {REPO}" in capsys.readouterr().err
    else:
        assert not (tmp_path / "org--demo").exists()
    hub.faults.faults.remove(broken)
    hub.forget_requests()
    code, answer = pull(capsys, *options)
    assert code == 0
    assert 0 < answer["download_bytes"] < answer["total_bytes"]
    assert hub.bytes_sent(_blob_of("model-00001")) < first.stat().st_size
    if into == "cache":
        assert listed(capsys) == {"models": [REPO], "incomplete": []}


def _blob_of(prefix: str) -> str:
    """What is in the address of a shard's content."""
    from mtplx.contracts.files import sha256_file

    return sha256_file(next(demo_model_path().glob(f"{prefix}*.safetensors")))


@pytest.mark.usefixtures("commit")
def test_another_checksum_is_refused_and_fetched_anew(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.fail(_blob_of("model-00002"), method="GET", after=1, corrupt=True)
    code, answer = pull(capsys)
    assert code == 11
    assert "model-00002-of-00002.safetensors" in answer["error"]["message"]
    assert listed(capsys) == {"models": [], "incomplete": [REPO]}
    assert pull(capsys)[0] == 0


@pytest.mark.usefixtures("commit")
def test_damage_found_later_makes_the_model_incomplete(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(pull(capsys)[1]["path"])
    tokenizer = (folder / "tokenizer.json").resolve()
    tokenizer.write_bytes(tokenizer.read_bytes()[:-1] + b" ")
    assert pull(capsys)[0] == 11
    assert listed(capsys) == {"models": [], "incomplete": [REPO]}
    assert pull(capsys)[0] == 0
    assert listed(capsys) == {"models": [REPO], "incomplete": []}
    assert hub.asked("tokenizer.json")


@pytest.mark.usefixtures("commit")
def test_a_small_disk_is_told_before_the_transfer(
    hub: HubServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    weights = sum(path.stat().st_size for path in demo_model_path().glob("*.safetensors"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**12, 10**12, weights - 1))
    code, answer = pull(capsys)
    assert (code, answer["error"]["code"]) == (8, "resource")
    assert hub.bytes_sent(SHARDS) < weights / 10


def test_a_repository_that_is_not_there(hub: HubServer, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = pull(capsys)
    assert code == 11
    assert "no such repository" in answer["error"]["message"]
    hub.add(REPO, demo_model_path(), private=True)
    code, answer = pull(capsys)
    assert code == 11
    assert "HTTP 401" in answer["error"]["message"]
    assert "hf auth login" in answer["error"]["hint"]


@pytest.mark.usefixtures("commit")
def test_a_revision_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = pull(capsys, "--revision", "v9")
    assert code == 11
    assert "no such revision: v9" in answer["error"]["message"]


@pytest.mark.parametrize("text", ["demo", "../org/demo", "https://elsewhere.example/org/demo", ""])
@pytest.mark.usefixtures("hub")
def test_what_is_no_repository_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["pull", text]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_what_cannot_run_is_not_fetched(hub: HubServer, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add(REPO, demo_model_path())
    config = json.loads((demo_model_path() / "config.json").read_text())
    config.update(model_type="mystery", architectures=["MysteryForCausalLM"])
    hub.push(REPO, {"config.json": json.dumps(config).encode()})
    code, answer = pull(capsys)
    assert (code, answer["error"]["code"]) == (5, "unsupported_model")
    assert not Path(constants.HF_HUB_CACHE).exists()


def test_missing_shards_of_a_repository_are_named(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(demo_model_path(), tmp_path / "model"))
    (folder / "model-00002-of-00002.safetensors").unlink()
    hub.add(REPO, folder)
    code, answer = pull(capsys)
    assert code == 4
    assert "model-00002-of-00002.safetensors" in answer["error"]["message"]
    assert not Path(constants.HF_HUB_CACHE).exists()


@pytest.mark.parametrize("can_link", [True, False])
@pytest.mark.usefixtures("commit")
def test_a_plain_folder_has_files_and_no_links(
    tmp_path: Path,
    *,
    can_link: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not can_link:
        monkeypatch.setattr(Path, "hardlink_to", _no_links)
    code, answer = pull(capsys, "--dir", str(tmp_path / "new"))
    folder = tmp_path / "new" / "org--demo"
    assert (code, answer["path"]) == (0, str(folder))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["org--demo"]
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert {n: len(data) for n, data in contents(folder).items()} == answer["files"]
    assert not Path(constants.HF_HUB_CACHE).exists()
    code, answer = pull(capsys, "--dir", str(tmp_path / "new"))
    assert (code, answer["error"]["code"]) == (2, "usage")


def _no_links(_path: Path, _target: Path) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.usefixtures("commit")
def test_a_folder_that_cannot_be_put_in_place_is_told_and_goes_on(
    hub: HubServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_file: Path, place: Path) -> None:
        raise OSError(28, "No space left on device", str(place))

    with monkeypatch.context() as patch:
        patch.setattr(pulling, "_link_or_copy", full)
        code, answer = pull(capsys, "--dir", str(tmp_path))
    assert (code, answer["error"]["code"]) == (8, "resource")
    assert not (tmp_path / "org--demo").exists()
    hub.forget_requests()
    code, answer = pull(capsys, "--dir", str(tmp_path))
    assert (code, answer["download_bytes"]) == (0, 0)


@pytest.mark.usefixtures("commit")
def test_ctrl_c_is_told_and_the_pull_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_pull: object, _on_progress: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pulling, "run_pull", stop)
        assert execute(["pull", REPO]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert pull(capsys)[0] == 0
