"""Sources on a hub: judged from headers, fetched, verified, and every way the hub can fail."""

from __future__ import annotations

import json
import random
import shutil
from collections import namedtuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from huggingface_hub import constants

from mtplx.contracts.errors import DownloadError, ResourceError, TensorFileError, UsageError
from mtplx.contracts.inspection import inspect_folder
from mtplx.forge.hub import download
from mtplx.forge.hub.headers import FIRST_READ_BYTES
from mtplx.forge.hub.search import discover
from mtplx.forge.source import Source, open_source
from tests.support.tensorfile import encode, write_tensors

if TYPE_CHECKING:
    from tests.conftest import TinyFactory
    from tests.support.hub_server import HubServer

REPO = "org/tiny"
WEIGHTS = "storage/"


def quiet(_done: int, _total: int) -> None:
    """Nobody watches."""


def judgement(folder: Path) -> dict[str, Any]:
    """What an inspection says of a folder, wherever it lies."""
    found = inspect_folder(folder).to_json()
    return json.loads(json.dumps(found).replace(str(folder), "FOLDER"))  # type: ignore[no-any-return]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def big_file(folder: Path, megabytes: int) -> None:
    """Make the weights of `folder` one big file that begins with a valid header."""
    import numpy as np

    values = np.zeros((megabytes, 256, 1024), dtype=np.float32)
    write_tensors(folder / "model.safetensors", {"x": encode(values, "F32")}, made_by="pt")


# Judging without weights


@pytest.mark.parametrize(
    "options",
    [
        {"family": "qwen3_5"},
        {"family": "qwen3_5", "head": False},
        {"family": "glm4_moe", "sidecar": "mtp/head.safetensors"},
        {"family": "deepseek_v3", "fp8": True},
        {"family": "mimo", "single_file": True, "chat_template": "jinja"},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_skeleton_is_judged_like_the_folder(
    hub: HubServer, shared_tiny: TinyFactory, options: dict[str, Any]
) -> None:
    folder = shared_tiny(**options)
    hub.add(REPO, folder)
    with open_source(REPO).skeleton() as skeleton:
        assert judgement(skeleton) == judgement(folder)
        for path in folder.rglob("*.safetensors"):
            assert (skeleton / path.relative_to(folder)).stat().st_size == path.stat().st_size


@pytest.mark.parametrize("damage", ["truncated", "no_safetensors", "huge_header", "shard_missing"])
def test_skeleton_of_a_broken_repository_has_the_same_fault(
    hub: HubServer, tiny: TinyFactory, damage: str
) -> None:
    folder = tiny("qwen3_5")
    shard = folder / "model-00002-of-00002.safetensors"
    if damage == "truncated":
        shard.write_bytes(shard.read_bytes()[:-5])
    elif damage == "no_safetensors":
        shard.write_bytes(b"not weights at all")
    elif damage == "huge_header":
        shard.write_bytes((2**62).to_bytes(8, "little") + shard.read_bytes()[8:])
    else:
        shard.unlink()
    hub.add(REPO, folder)
    with open_source(REPO).skeleton() as skeleton:
        assert inspect_folder(folder).error is not None
        assert judgement(skeleton) == judgement(folder)


def test_only_headers_of_weights_are_read(hub: HubServer, tiny: TinyFactory) -> None:
    folder = tiny("qwen3_5", single_file=True)
    big_file(folder, 4)
    hub.add(REPO, folder)
    with open_source(REPO).skeleton():
        assert 0 < hub.bytes_sent(WEIGHTS) <= FIRST_READ_BYTES
    assert all(request.range for request in hub.asked(WEIGHTS))


def test_header_longer_than_the_first_read_takes_a_second_one(
    hub: HubServer, tiny: TinyFactory
) -> None:
    import numpy as np

    folder = tiny("qwen3_5", single_file=True)
    many = {f"tensor.{i:06}": encode(np.zeros(2, np.float32), "F32") for i in range(3000)}
    write_tensors(folder / "model.safetensors", many, made_by="pt")
    hub.add(REPO, folder)
    with open_source(REPO).skeleton() as skeleton:
        assert judgement(skeleton) == judgement(folder)
    assert len(hub.asked(WEIGHTS, "GET")) == 2


def test_server_that_ignores_ranges_does_not_send_the_whole_file(
    hub: HubServer, tiny: TinyFactory
) -> None:
    folder = tiny("qwen3_5", single_file=True)
    big_file(folder, 48)
    hub.add(REPO, folder)
    hub.fail(WEIGHTS, times=None, ignore_range=True)
    with open_source(REPO).skeleton() as skeleton:
        assert judgement(skeleton) == judgement(folder)
    assert hub.bytes_sent(WEIGHTS) < 24 * 1024 * 1024


def test_only_what_a_build_needs_is_fetched(hub: HubServer, tiny: TinyFactory) -> None:
    folder = tiny("qwen3_5")
    needed = set(contents(folder))
    for name in (
        "modeling.py",
        "pytorch_model.bin",
        "x.gguf",
        "logo.png",
        "onnx/model.safetensors",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"unwanted")
    (folder / "consolidated.safetensors").write_bytes((folder / "config.json").read_bytes())
    (folder / "README.md").write_text("card")
    hub.add(REPO, folder)
    source = open_source(REPO)
    assert {file.name for file in source.files} == needed | {"README.md"}
    fetched = source.fetch(quiet)
    assert set(contents(fetched)) == needed | {"README.md"}
    assert all(contents(fetched)[name] == contents(folder)[name] for name in needed)


def test_repository_with_other_formats_only_is_told_so(hub: HubServer, tiny: TinyFactory) -> None:
    folder = tiny("qwen3_5")
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    (folder / "model-Q4.gguf").write_bytes(b"GGUF")
    hub.add(REPO, folder)
    hub.add("org/bare", {"model-Q4.gguf": b"GGUF"})
    with open_source(REPO).skeleton() as skeleton:
        assert "Only safetensors are read" in str(inspect_folder(skeleton).error)
    with open_source("org/bare").skeleton() as skeleton:
        assert "GGUF files are not read" in str(inspect_folder(skeleton).error)


def test_file_name_that_leads_out_is_refused(hub: HubServer, tiny: TinyFactory) -> None:
    hub.add(REPO, tiny("qwen3_5"))
    hub.push(REPO, {"mtp/..safetensors": b"", "mtp\\x.safetensors": b"x"})
    with pytest.raises(TensorFileError, match="leads out"), open_source(REPO).skeleton():
        pass


# The commit


def test_everything_is_read_at_the_commit_that_the_branch_was_at(
    hub: HubServer, tiny: TinyFactory
) -> None:
    folder = tiny("qwen3_5")
    first = hub.add(REPO, folder)
    hub.fail(
        "resolve/.*generation_config",
        action=lambda: hub.push(REPO, {"config.json": b"{}", "tokenizer.json": b"{}"}),
    )
    source = open_source(REPO, revision="main")
    with source.skeleton() as skeleton:
        assert judgement(skeleton) == judgement(folder)
    assert contents(source.fetch(quiet)) == contents(folder)
    assert source.commit == first != hub.repositories[REPO].branches["main"]
    assert all(f"/{first}/" in request.path for request in hub.asked("/resolve/"))


def test_branch_and_commit_are_revisions(hub: HubServer) -> None:
    first = hub.add(REPO, {"config.json": b"{}"})
    other = hub.push(REPO, {"config.json": b"[]"}, branch="dev")
    assert open_source(REPO).commit == first
    assert open_source(REPO, revision="dev").commit == other
    assert open_source(f"hf:{REPO}", revision=other).commit == other
    assert open_source(f"{hub.url}/{REPO}/tree/dev").commit == other
    assert open_source(f"{hub.url}/{REPO}").name == "tiny"


# Fetching


@pytest.fixture
def source(hub: HubServer, shared_tiny: TinyFactory) -> Source:
    """A repository of a tiny model."""
    hub.add(REPO, shared_tiny("qwen3_5"))
    return open_source(REPO)


def test_fetch_tells_bytes_that_never_fall_and_end_at_the_total(source: Source) -> None:
    told: list[tuple[int, int]] = []
    source.fetch(lambda done, total: told.append((done, total)))
    total = sum(file.size for file in source.files)
    assert told == sorted(told)
    assert told[-1] == (total, total)


def test_second_fetch_asks_the_hub_for_nothing(hub: HubServer, source: Source) -> None:
    first = source.fetch(quiet)
    hub.forget_requests()
    assert source.fetch(quiet) == first
    assert hub.requests == []


def test_broken_body_is_continued_where_it_stopped(
    hub: HubServer, capfd: pytest.CaptureFixture[str]
) -> None:
    data = random.Random(0).randbytes(constants.DOWNLOAD_CHUNK_SIZE + 5000)
    hub.add(REPO, {"model.safetensors": data})
    hub.fail(WEIGHTS, method="GET", truncate=constants.DOWNLOAD_CHUNK_SIZE + 1000)
    fetched = open_source(REPO).fetch(quiet)
    assert (fetched / "model.safetensors").read_bytes() == data
    ranges = [request.range for request in hub.asked(WEIGHTS, "GET")]
    assert ranges == [None, f"bytes={constants.DOWNLOAD_CHUNK_SIZE}-"]
    assert "secret" not in capfd.readouterr().err


def test_body_that_always_breaks_ends_in_an_error_and_leaves_no_short_file(
    hub: HubServer, source: Source
) -> None:
    hub.fail(WEIGHTS, method="GET", times=None, truncate=0)
    with pytest.raises(DownloadError, match=r"connection .* failed"):
        source.fetch(quiet)
    names = {path.name for path in Path(constants.HF_HUB_CACHE).rglob("*")}
    assert not any(name.endswith((".safetensors", ".incomplete")) for name in names)


def test_wrong_content_is_refused_by_name_and_fetched_anew_next_time(
    hub: HubServer, source: Source, shared_tiny: TinyFactory
) -> None:
    hub.fail(WEIGHTS, method="GET", corrupt=True)
    hub.fail("resolve/.*/tokenizer.json", method="GET", corrupt=True)
    with pytest.raises(DownloadError, match=r"2 files .*\.safetensors, tokenizer\.json"):
        source.fetch(quiet)
    assert contents(source.fetch(quiet)) == contents(shared_tiny("qwen3_5"))


def test_damage_in_the_cache_is_found_and_mended(source: Source) -> None:
    shard = next(source.fetch(quiet).glob("*.safetensors")).resolve()
    good = shard.read_bytes()
    shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(DownloadError, match="removed from the cache"):
        source.fetch(quiet)
    source.fetch(quiet)
    assert shard.read_bytes() == good


def test_small_disk_is_told_before_anything_is_fetched(
    hub: HubServer, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**12, 10**12, 3))
    hub.forget_requests()
    with pytest.raises(ResourceError, match=r"GiB more in .*hub, and 0\.00 GiB are free"):
        source.fetch(quiet)
    assert hub.requests == []


def test_what_the_watcher_raises_ends_the_fetch(
    hub: HubServer, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "REPORT_EVERY_S", 0.01)
    hub.fail(WEIGHTS, method="GET", times=None, hang_s=0.3)
    calls: list[int] = []

    def cancel(done: int, _total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt("cancelled")

    with pytest.raises(KeyboardInterrupt, match="cancelled"):
        source.fetch(cancel)
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.incomplete"))


def test_parts_of_killed_downloads_are_removed(source: Source) -> None:
    blobs = Path(constants.HF_HUB_CACHE) / "models--org--tiny" / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    part = blobs / f"{'0' * 64}.12345678.incomplete"
    part.write_bytes(b"half")
    source.fetch(quiet)
    assert not part.exists()


# Failures of the hub


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
@pytest.mark.parametrize("place", ["api/models", "resolve/.*/config.json", WEIGHTS])
def test_passing_failure_is_waited_for(
    hub: HubServer, shared_tiny: TinyFactory, place: str, status: int
) -> None:
    hub.add(REPO, shared_tiny("qwen3_5"))
    fault = hub.fail(place, times=2, status=status, retry_after=0 if status == 429 else None)
    assert contents(open_source(REPO).fetch(quiet)) == contents(shared_tiny("qwen3_5"))
    assert fault.seen > 2


@pytest.mark.parametrize("status", [429, 500])
@pytest.mark.parametrize("place", ["api/models", "resolve/.*/config.json", WEIGHTS])
def test_failure_that_stays_is_told(
    hub: HubServer, shared_tiny: TinyFactory, place: str, status: int
) -> None:
    hub.add(REPO, shared_tiny("qwen3_5"))
    hub.fail(place, times=None, status=status)
    with pytest.raises(DownloadError, match=f"HTTP {status}") as caught:
        open_source(REPO).fetch(quiet)
    assert "secret" not in str(caught.value)
    assert len(hub.asked(place)) <= 12


def test_wait_that_is_too_long_is_not_waited(hub: HubServer) -> None:
    hub.add(REPO, {"config.json": b"{}"})
    hub.fail("api/models", times=None, status=429, retry_after=86400)
    with pytest.raises(DownloadError, match="too many requests"):
        open_source(REPO)
    assert len(hub.asked("")) == 1


def test_missing_repository_and_missing_revision_are_told_apart(hub: HubServer) -> None:
    hub.add(REPO, {"config.json": b"{}"})
    with pytest.raises(DownloadError, match="no such repository: org/other"):
        open_source("org/other")
    with pytest.raises(DownloadError, match="org/tiny has no such revision: v9"):
        open_source(REPO, revision="v9")


def test_private_repository_needs_a_login_and_the_token_stays_at_the_hub(
    hub: HubServer, shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(REPO, shared_tiny("qwen3_5"), private=True)
    with pytest.raises(DownloadError, match="hf auth login"):
        open_source(REPO)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(DownloadError, match="HTTP 401") as caught:
        open_source(REPO)
    assert "hf_wrong" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    source = open_source(REPO)
    with source.skeleton() as skeleton:
        assert judgement(skeleton) == judgement(shared_tiny("qwen3_5"))
    source.fetch(quiet)
    assert not any(request.is_authorized for request in hub.asked(WEIGHTS))


def test_gated_repository_says_where_to_ask(hub: HubServer) -> None:
    hub.add(REPO, {"config.json": b"{}"}, gated=True)
    with pytest.raises(DownloadError, match=rf"gated.*{hub.url}/{REPO}"):
        open_source(REPO).fetch(quiet)


def test_forbidden_is_told(hub: HubServer) -> None:
    hub.add(REPO, {"config.json": b"{}"})
    hub.fail("api/models", times=None, status=403)
    with pytest.raises(DownloadError, match=r"HTTP 403.*HF_TOKEN"):
        open_source(REPO)


def test_offline_mode_is_told(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(REPO, {"config.json": b"{}"})
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE"):
        open_source(REPO)


def test_hub_that_is_not_there_is_told(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"connection to http://127\.0\.0\.1:9 failed"):
        open_source(REPO)
    assert hub.requests == []


# Searching


def test_discover_tells_families_and_whether_a_head_is_likely(hub: HubServer) -> None:
    def add(name: str, model_type: str, files: dict[str, bytes], *tags: str, **config: int) -> None:
        hub.add(
            name,
            files,
            tags=["safetensors", model_type, *tags],
            config={"model_type": model_type, **config},
            downloads=len(hub.repositories),
        )

    add("a/llama", "llama", {})
    add("a/glm", "glm4_moe", {}, num_nextn_predict_layers=1)
    add("a/glm-mlx", "glm4_moe", {}, "mlx")
    add("a/qwen", "qwen3_5", {"mtp.safetensors": b""})
    add("a/other", "brand_new", {})

    by_query = {found.repo: found for found in discover("a/", limit=10)}
    assert {repo: found.has_mtp for repo, found in by_query.items()} == {
        "a/llama": False,
        "a/glm": True,
        "a/glm-mlx": None,
        "a/qwen": True,
        "a/other": None,
    }
    assert "mlx conversions often drop" in by_query["a/glm-mlx"].why
    assert by_query["a/other"].family is None
    assert [found.repo for found in discover()] == ["a/qwen", "a/glm-mlx", "a/glm"]
    assert [found.repo for found in discover(limit=1, offset=1)] == ["a/glm-mlx"]
    assert json.loads(json.dumps(by_query["a/qwen"].to_json()))["repo"] == "a/qwen"


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 101}, {"offset": -1}])
def test_discover_refuses_what_it_cannot_page(options: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        discover("x", **options)


# What publishing will build on


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub's own
def test_published_files_are_read_back(
    hub: HubServer, shared_tiny: TinyFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import HfApi

    monkeypatch.setenv("HF_TOKEN", hub.token)
    api, folder = HfApi(), shared_tiny("qwen3_5")
    assert api.whoami()["name"] == hub.user
    api.create_repo("org/new", private=True)
    api.upload_folder(repo_id="org/new", folder_path=folder, commit_message="all at once")
    assert hub.repositories["org/new"].messages == ["initial commit", "all at once"]
    assert contents(open_source("org/new").fetch(quiet)) == contents(folder)
    api.verify_repo_checksums("org/new", local_dir=folder)
