"""Publishing to a hub: one commit, resumed uploads, every failure told, and no token anywhere."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from huggingface_hub import constants

from mtplx.contracts.errors import UsageError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.inspection import inspect_folder
from mtplx.contracts.runtime_contract import read_contract
from mtplx.forge.build import prepare_build, run_build
from mtplx.forge.cancel import cancel
from mtplx.forge.plan import make_plan
from mtplx.forge.publish import progress
from mtplx.forge.publish.preparation import PublishRequest, prepare_publication
from mtplx.forge.publish.publish import publish
from mtplx.forge.recipe import load_recipe
from mtplx.forge.source import open_source
from tests.support.contracts import EXACTNESS, content_of
from tests.support.forged import assert_same_logits
from tests.support.hub_store import files_of
from tests.support.published import SPEED, make_artifact, write_contract
from tests.support.publishing import Publisher, Result, start

if TYPE_CHECKING:
    from tests.conftest import TinyFactory
    from tests.support.hub_server import HubServer

# `huggingface_hub` uploads file objects in a way that httpx2 no longer likes.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")

REPO = "tester/model"
FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
MADE = {"README.md", CONTRACT_NAME}
PUBLISH_KEYS = {
    "bytes_uploaded",
    "total_bytes",
    "mb_per_s",
    "repo_created",
    "revision",
    "repo",
    "finished",
}


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return make_artifact(tmp_path / "artifact")


@pytest.fixture
def publisher(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Publisher:
    """The command, logged in by the environment."""
    monkeypatch.setenv("HF_TOKEN", hub.token)
    return Publisher(monkeypatch, capsys)


def uploads(hub: HubServer) -> list[str]:
    """The LFS content that arrived whole, in order, by its hash."""
    return [
        request.path.split("/")[2][:64]
        for request in hub.asked("^/storage/", "PUT")
        if request.status == 200
    ]


def sha256(artifact: Path, name: str) -> str:
    return files_of(artifact)[name].sha256


def visible(hub: HubServer, repo: str = REPO) -> set[str]:
    """Names of the files that visitors of the repository see."""
    repository = hub.repositories.get(repo)
    return set(repository.head()) if repository is not None else set()


def published_record(artifact: Path) -> dict[str, str]:
    contract = read_contract(artifact)
    assert contract is not None
    assert contract.forge_provenance is not None
    record = contract.forge_provenance.published_to_hf
    assert isinstance(record, dict)
    return record


def assert_failed(hub: HubServer, result: Result, *words: str) -> None:
    """An error without a traceback and without the token, and nothing visible."""
    assert result.code == 11, result
    assert "Traceback" not in result.err
    assert hub.token not in result.out + result.err
    for word in words:
        assert word in result.err
    assert visible(hub) <= {".gitattributes"}


# What a publication is


def test_a_new_repository_gets_everything_in_one_commit(
    hub: HubServer, publisher: Publisher, artifact: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    code, shown, err = publisher(artifact, REPO, "--out", str(out))
    assert (code, err) == (0, "")
    repository = hub.repositories[REPO]
    assert repository.messages == ["initial commit", "Publish model with mtplx"]
    assert len(repository.operations) == 1
    sent, local = repository.head(), files_of(artifact)
    assert set(sent) == set(local) | {"README.md", ".gitattributes"}
    assert all(sent[name].data == local[name].data for name in set(local) - MADE)
    assert sent[FIRST].is_lfs
    assert "| MTP, depth 2 |" in sent["README.md"].data.decode()

    revision = repository.branches["main"]
    assert revision in shown
    assert published_record(artifact) == {
        "repo": REPO,
        "visibility": "public",
        "license_spdx": "Apache-2.0",
        "revision": revision,
        "uploaded_at": "2030-01-02T03:04:05+00:00",
    }
    assert inspect_folder(artifact, verify_hashes=True).tier == "verified"
    state = json.loads((out / "publish.json").read_text())
    assert set(state) >= PUBLISH_KEYS
    assert state["bytes_uploaded"] == state["total_bytes"] > 70_000
    assert (state["repo"], state["repo_created"], state["finished"]) == (REPO, True, True)
    assert state["revision"] == revision


def test_publishing_again_changes_nothing(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    publisher(artifact, REPO)
    contract = (artifact / CONTRACT_NAME).read_bytes()
    commits = list(hub.repositories[REPO].commits)
    hub.forget_requests()
    result = publisher(artifact, REPO, "--json")
    assert result.json["committed"] is False
    assert result.json["revision"] == commits[-1]
    assert list(hub.repositories[REPO].commits) == commits
    assert not hub.asked("", "PUT")
    assert not hub.asked("preupload|commit", "POST")
    assert (artifact / CONTRACT_NAME).read_bytes() == contract
    assert "holds all of it already" in publisher(artifact, REPO).out


def test_a_record_that_was_lost_is_written_again_without_a_commit(
    publisher: Publisher, artifact: Path
) -> None:
    before = (artifact / CONTRACT_NAME).read_bytes()
    publisher(artifact, REPO)
    record = published_record(artifact)
    (artifact / CONTRACT_NAME).write_bytes(before)
    assert publisher(artifact, REPO, "--json").json["committed"] is False
    assert published_record(artifact) == record


def test_a_changed_file_is_sent_alone(hub: HubServer, publisher: Publisher, artifact: Path) -> None:
    publisher(artifact, REPO)
    hub.forget_requests()
    (artifact / "NOTICE").write_text("Made by us.")
    shown = publisher(artifact, REPO, "--json").json
    assert shown["files_uploaded"] == ["NOTICE"]
    assert shown["files_deleted"] == []
    assert hub.repositories[REPO].operations[-1] == ["file NOTICE"]
    assert uploads(hub) == []
    assert FIRST in visible(hub)


def test_a_new_build_sends_new_weights_and_takes_old_ones_away(
    hub: HubServer, publisher: Publisher, artifact: Path, tmp_path: Path
) -> None:
    publisher(artifact, REPO)
    hub.push(REPO, {"picture.png": b"png", "model-00003-of-00003.safetensors": b"old"})
    other = make_artifact(tmp_path / "other")
    shard = other / SECOND
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    contract = json.loads((other / CONTRACT_NAME).read_text())
    write_contract(other, {**contract, "content": content_of(other)})
    hub.forget_requests()
    shown = publisher(other, REPO, "--json").json
    assert set(shown["files_uploaded"]) == {SECOND, *MADE}
    assert shown["files_deleted"] == ["model-00003-of-00003.safetensors"]
    assert uploads(hub) == [sha256(other, SECOND)]
    assert {"picture.png", FIRST, SECOND} <= visible(hub)
    assert len(hub.repositories[REPO].operations) == 2


def test_dry_run_asks_the_hub_for_nothing(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    assert publisher(artifact, REPO, "--dry-run").code == 0
    assert publisher(artifact, REPO, "--dry-run", "--license", "nope").code == 2
    assert hub.requests == []


def test_large_content_goes_in_parts(
    hub: HubServer, publisher: Publisher, artifact: Path, tmp_path: Path
) -> None:
    hub.part_size = 16_000
    out = tmp_path / "run"
    assert publisher(artifact, REPO, "--out", str(out)).code == 0
    assert len(hub.asked("^/part/", "PUT")) == 6
    assert hub.repositories[REPO].head()[FIRST].data == (artifact / FIRST).read_bytes()
    assert json.loads((out / "publish.json").read_text())["finished"] is True


def test_a_private_repository_stays_private(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    assert publisher(artifact, REPO, "--private", "--json").json["visibility"] == "private"
    assert hub.repositories[REPO].private
    assert published_record(artifact)["visibility"] == "private"
    assert publisher(artifact, REPO, "--json").json["visibility"] == "private"


def test_private_is_refused_for_a_public_repository(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    hub.add(REPO, {"README.md": b"soon"})
    result = publisher(artifact, REPO, "--private")
    assert result.code == 2
    assert "exists and is public" in result.err
    assert visible(hub) == {"README.md"}


def test_the_model_of_somebody_else_is_not_replaced(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    hub.add(REPO, {"model.safetensors": b"weights", "config.json": b"{}"})
    result = publisher(artifact, REPO)
    assert result.code == 2
    assert "no artifact of mtplx" in result.err
    assert not hub.asked("", "PUT")
    assert len(hub.repositories[REPO].commits) == 1


def test_a_forced_artifact_is_labelled_on_the_hub(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    contract = json.loads((artifact / CONTRACT_NAME).read_text())
    write_contract(artifact, {**contract, "exactness": None})
    assert publisher(artifact, REPO).code == 2
    assert hub.requests == []
    assert publisher(artifact, REPO, "--force-unverified").code == 0
    files = hub.repositories[REPO].head()
    assert json.loads(files[CONTRACT_NAME].data)["labels"] == ["unverified"]
    assert b"> **Unverified.**" in files["README.md"].data
    assert hub.repositories[REPO].messages[-1].endswith("(unverified)")


def test_files_that_the_repository_ignores_are_missed(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    hub.add(REPO, {".gitignore": b"LICENSE\n"})
    result = publisher(artifact, REPO)
    assert result.code == 11
    assert "does not hold LICENSE as it was sent" in result.err


# Failures


PLACES = {
    "creating": "api/repos/create",
    "asking": "preupload",
    "announcing": "lfs/objects/batch",
    "sending": "^/storage/",
    "verifying": "^/verify/",
    "committing": "/commit/main",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_a_failure_is_told_and_the_same_command_goes_on(
    hub: HubServer, publisher: Publisher, artifact: Path, place: str, status: int
) -> None:
    fault = hub.fail(PLACES[place], status=status, times=None)
    before = (artifact / CONTRACT_NAME).read_bytes()
    assert_failed(hub, publisher(artifact, REPO), f"HTTP {status}")
    assert (artifact / CONTRACT_NAME).read_bytes() == before
    sent = uploads(hub)
    hub.faults.faults.remove(fault)
    assert publisher(artifact, REPO).code == 0
    assert len(hub.repositories[REPO].operations) == 1
    if place != "verifying":
        assert len(uploads(hub)) == len(set(uploads(hub))) == 2
    assert len(sent) == (2 if place == "committing" else int(place == "verifying"))


@pytest.mark.parametrize("place", ["asking", "announcing", "sending", "verifying"])
@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429}, {"hang_up": 10}])
def test_a_passing_failure_is_waited_for(
    hub: HubServer, publisher: Publisher, artifact: Path, place: str, fault: dict[str, int]
) -> None:
    seen = hub.fail(PLACES[place], times=2, **fault)
    assert publisher(artifact, REPO).code == 0
    assert seen.seen > 2
    assert hub.repositories[REPO].head()[FIRST].data == (artifact / FIRST).read_bytes()


def test_a_connection_that_always_breaks_is_told(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    hub.fail("^/storage/", times=None, hang_up=20_000)
    result = publisher(artifact, REPO)
    assert_failed(hub, result, "connection", f"sending {FIRST}")
    assert "sig=" not in result.err


def test_finished_files_are_not_sent_again(
    hub: HubServer, publisher: Publisher, artifact: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    fault = hub.fail(f"^/storage/{sha256(artifact, SECOND)}", status=500, times=None)
    assert_failed(hub, publisher(artifact, REPO, "--out", str(out)), f"sending {SECOND}")
    state = json.loads((out / "publish.json").read_text())
    assert (state["finished"], state["revision"]) == (False, None)
    assert uploads(hub) == [sha256(artifact, FIRST)]
    hub.faults.faults.remove(fault)
    hub.forget_requests()
    assert publisher(artifact, REPO, "--out", str(out)).code == 0
    assert uploads(hub) == [sha256(artifact, SECOND)]
    assert json.loads((out / "publish.json").read_text())["repo_created"] is False


def test_a_file_that_changes_while_it_is_sent_is_refused(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    def change() -> None:
        data = (artifact / SECOND).read_bytes()
        (artifact / SECOND).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    hub.fail(f"^/storage/{sha256(artifact, FIRST)}", action=change)
    assert_failed(hub, publisher(artifact, REPO), "HTTP 400", "does not match its sha256")


def test_a_small_file_that_changes_meanwhile_is_refused(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    tokenizer = artifact / "tokenizer_config.json"
    hub.fail(f"^/storage/{sha256(artifact, FIRST)}", action=lambda: tokenizer.write_text("{}"))
    result = publisher(artifact, REPO)
    assert result.code == 2
    assert "tokenizer_config.json has changed since it was checked" in result.err
    assert visible(hub) == {".gitattributes"}


def test_what_the_hub_says_is_told_unless_it_quotes_the_token(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    fault = hub.fail("/commit/main", status=403, says="storage is full see https://x.y/z?t=1")
    result = publisher(artifact, REPO)
    assert_failed(hub, result, "storage is full")
    assert "https://x.y" not in result.err
    fault.seen, fault.says = 0, f"{hub.token} is bad"
    result = publisher(artifact, REPO)
    assert_failed(hub, result, "HTTP 403")
    assert "is bad" not in result.err


def test_somebody_who_commits_meanwhile_is_not_overwritten(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    hub.fail("/commit/main", action=lambda: hub.push(REPO, {"NEWS.md": b"theirs"}))
    assert publisher(artifact, REPO).code == 0
    assert {"NEWS.md", FIRST} <= visible(hub)
    assert len(uploads(hub)) == 2


@pytest.mark.parametrize("status", [409, 412])
def test_a_conflict_is_tried_once_more(
    hub: HubServer, publisher: Publisher, artifact: Path, status: int
) -> None:
    hub.fail("/commit/main", status=status)
    assert publisher(artifact, REPO).code == 0
    assert FIRST in visible(hub)


@pytest.mark.parametrize("status", [409, 412])
def test_a_conflict_that_stays_is_told(
    hub: HubServer, publisher: Publisher, artifact: Path, status: int
) -> None:
    hub.fail("/commit/main", status=status, times=None)
    assert_failed(hub, publisher(artifact, REPO), "changed by others")
    assert len(hub.asked("/commit/main")) == 2


def test_a_repository_that_appears_meanwhile_is_taken_as_it_is(
    hub: HubServer, publisher: Publisher, artifact: Path
) -> None:
    hub.fail("api/repos/create", action=lambda: hub.add(REPO, {"README.md": b"theirs"}))
    shown = publisher(artifact, REPO, "--json").json
    assert shown["repo_created"] is False
    assert FIRST in visible(hub)


def test_a_wrong_token_is_told(
    hub: HubServer, publisher: Publisher, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    result = publisher(artifact, REPO)
    assert_failed(hub, result, "does not accept the token")
    assert "hf_wrong" not in result.err
    assert REPO not in hub.repositories


def test_offline_mode_is_told(
    hub: HubServer, publisher: Publisher, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert_failed(hub, publisher(artifact, REPO), "HF_HUB_OFFLINE")


# Stopping


def test_a_publication_can_be_cancelled_and_goes_on_later(
    hub: HubServer,
    publisher: Publisher,
    artifact: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_REPORT_EVERY_S", 0.0)
    out = tmp_path / "run-7"
    hub.fail(f"^/storage/{sha256(artifact, FIRST)}", action=lambda: cancel("run-7"))
    code, _, err = publisher(artifact, REPO, "--out", str(out))
    assert code == 130
    assert "cancelled by `mtplx forge cancel run-7`" in err
    assert "the same command goes on" in err
    assert visible(hub) == {".gitattributes"}
    assert json.loads((out / "publish.json").read_text())["finished"] is False
    sent = uploads(hub)
    assert sent == [sha256(artifact, FIRST)]
    assert publisher(artifact, REPO, "--out", str(out)).code == 0
    assert uploads(hub) == [*sent, sha256(artifact, SECOND)]


def test_an_upload_stops_within_a_file(
    hub: HubServer, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_REPORT_EVERY_S", 0.0)
    publication = prepare_publication(PublishRequest(artifact, REPO))
    files = publication.uploads("public")
    limit = sum(file.size for file in files[: [file.name for file in files].index(SECOND) + 1])

    def stop(state: dict[str, Any]) -> None:
        if state["bytes_uploaded"] >= limit:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(publication, hub.token, stop)
    assert uploads(hub) == [sha256(artifact, FIRST)]
    assert visible(hub) == {".gitattributes"}


def test_what_did_not_pass_is_not_published_by_the_library_either(
    hub: HubServer, artifact: Path
) -> None:
    (artifact / "LICENSE").unlink()
    publication = prepare_publication(PublishRequest(artifact, REPO))
    with pytest.raises(UsageError, match="license_valid"):
        publish(publication, hub.token, lambda _state: None)
    assert hub.requests == []


def test_a_killed_publication_goes_on_where_it_was(
    hub: HubServer, publisher: Publisher, artifact: Path, tmp_path: Path
) -> None:
    arrived = hub.fail(f"^/storage/{sha256(artifact, SECOND)}", hang_s=60.0)
    flags = ["--repo", REPO, "--yes", "--out", str(tmp_path / "run")]
    process = start(str(artifact), *flags)
    deadline = time.monotonic() + 60
    while not arrived.seen and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert visible(hub) == {".gitattributes"}
    assert "published_to_hf" not in (artifact / CONTRACT_NAME).read_text()

    assert publisher(artifact, REPO, "--out", str(tmp_path / "run")).code == 0
    assert uploads(hub).count(sha256(artifact, FIRST)) == 1
    assert len(hub.repositories[REPO].operations) == 1
    assert FIRST in visible(hub)


# The token


@pytest.mark.parametrize("fails", [False, True])
def test_the_token_is_written_nowhere(
    hub: HubServer, artifact: Path, tmp_path: Path, fails: bool
) -> None:
    if fails:
        hub.fail("/commit/main", status=500, times=None, says=f"no {hub.token}")
    flags = ["--repo", REPO, "--yes", "--token-stdin", "--out", str(tmp_path / "run")]
    process = start(
        str(artifact),
        *flags,
        HF_DEBUG="1",
        HF_HUB_VERBOSITY="debug",
        MTPLX_DEBUG="1",
        PYTHONFAULTHANDLER="1",
    )
    out, err = process.communicate(hub.token.encode() + b"\n", timeout=120)
    assert process.returncode == (11 if fails else 0), err
    assert b"HTTP" in err or b"Request" in err  # The library did log.
    written = {"stdout": out, "stderr": err}
    for place in (tmp_path, Path(constants.HF_HOME), Path(os.environ["MTPLX_HOME"])):
        written |= {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for commit in hub.repositories[REPO].commits.values():
        written |= {f"on the hub: {name}": blob.data for name, blob in commit.items()}
    assert str(tmp_path / "run" / "publish.json") in written
    assert [place for place, data in written.items() if hub.token.encode() in data] == []
    assert not any(request.is_authorized for request in hub.asked("^/storage/"))


def test_the_token_comes_from_standard_input(
    hub: HubServer, publisher: Publisher, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    monkeypatch.setattr(sys, "stdin", io.StringIO(hub.token + "\n"))
    assert publisher(artifact, REPO, "--token-stdin").code == 0


def test_the_token_comes_from_the_login(
    hub: HubServer, publisher: Publisher, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    assert publisher(artifact, REPO).code == 2
    Path(constants.HF_TOKEN_PATH).write_text(hub.token)
    assert publisher(artifact, REPO).code == 0


# Round trip


def test_from_hub_to_hub_and_back(
    hub: HubServer, publisher: Publisher, shared_tiny: TinyFactory, tmp_path: Path
) -> None:
    hub.add("org/source", shared_tiny("qwen3_5"))
    job = prepare_build(
        "org/source", load_recipe("lossless"), tmp_path, verify="none", calibrate=False
    )
    built = run_build(job, lambda _phase, _label, _done: None).path
    contract = json.loads((built / CONTRACT_NAME).read_text())
    evidence = {"exactness": EXACTNESS, "speed_evidence": SPEED, "labels": []}
    write_contract(built, {**contract, **evidence})

    result = publisher(built, REPO, "--license", "Apache-2.0")
    assert result.code == 0, result.err
    source = open_source(REPO)
    assert source.commit == published_record(built)["revision"]
    with source.skeleton() as skeleton:
        assert inspect_folder(skeleton).tier == "verified"
        plan = make_plan(source, skeleton, load_recipe("lossless"))
        assert plan.verdict == "already_mtplx"
    fetched = source.fetch(lambda _done, _total: None)
    found = inspect_folder(fetched, verify_hashes=True)
    assert found.tier == "verified"
    assert found.contract is not None
    assert found.contract.forge_provenance is not None
    assert found.contract.forge_provenance.source_repo == "org/source"
    assert_same_logits(fetched, built)
    card = hub.repositories[REPO].head()["README.md"].data.decode()
    assert "base_model: org/source" in card
