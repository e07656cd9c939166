"""A build from the hub: plan, download and artifact belong to one commit, whatever happens meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import DownloadError
from mtplx.contracts.runtime_contract import read_contract
from mtplx.demo import demo_model_path
from mtplx.forge.build import prepare_build, run_build
from mtplx.forge.job import BuildJob
from mtplx.forge.recipe import load_recipe
from mtplx.main import execute

if TYPE_CHECKING:
    from tests.support.hub_server import HubServer

REPO = "org/demo"


def quiet(_phase: str, _label: str, _fraction: float) -> None:
    """No progress."""


def job_of(out: Path, **options: Any) -> BuildJob:
    measured: dict[str, Any] = {"calibrate": False, "verify": "none"}
    return prepare_build(REPO, load_recipe("lossless"), out, name="demo", **measured, **options)


def test_a_build_from_the_hub_names_its_commit(hub: HubServer, tmp_path: Path) -> None:
    commit = hub.add(REPO, demo_model_path())
    result = run_build(job_of(tmp_path), quiet)
    contract = read_contract(result.path)
    assert contract is not None
    assert contract.forge_provenance is not None
    assert contract.forge_provenance.source_repo == REPO
    assert contract.forge_provenance.source_sha == commit
    download = json.loads((tmp_path / "run-demo" / "download.json").read_text())
    assert download["finished"] is True
    assert download["bytes_on_disk"] == download["total_bytes"] > 0


def test_planning_downloads_no_weights(hub: HubServer, tmp_path: Path) -> None:
    hub.add(REPO, demo_model_path())
    weights = sum(path.stat().st_size for path in demo_model_path().glob("*.safetensors"))
    job_of(tmp_path)
    assert hub.bytes_sent("safetensors") < weights / 10
    assert not list(tmp_path.glob("run-*"))


def test_a_build_stopped_while_downloading_goes_on_at_its_commit(
    hub: HubServer, tmp_path: Path
) -> None:
    commit = hub.add(REPO, demo_model_path())
    job = job_of(tmp_path)

    def stop_at_download(phase: str, _label: str, _fraction: float) -> None:
        if phase == "download":
            raise KeyboardInterrupt("stopped")

    with pytest.raises(KeyboardInterrupt):
        run_build(job, stop_at_download)
    moved = hub.push(REPO, {"generation_config.json": b'{"temperature": 0.9}'})
    assert moved != commit
    again = job_of(tmp_path, resume=True)
    assert again.request.commit == commit
    result = run_build(again, quiet)
    published = (demo_model_path() / "generation_config.json").read_bytes()
    assert json.loads((result.path / "generation_config.json").read_bytes()) == (
        json.loads(published)
    )


def test_a_download_with_another_checksum_makes_no_artifact(hub: HubServer, tmp_path: Path) -> None:
    hub.add(REPO, demo_model_path())
    job = job_of(tmp_path)
    (name, content), *_ = ((n, c) for n, c in hub.lfs.items() if len(c) > 1_000_000)
    hub.lfs[name] = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(DownloadError):
        run_build(job, quiet)
    assert not job.target.exists()
    hub.lfs[name] = content
    assert run_build(job_of(tmp_path, resume=True), quiet).path.is_dir()


def test_the_commands_find_probe_and_build(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add(REPO, demo_model_path())
    assert execute(["forge", "probe", REPO, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "forgeable"
    flags = ["--out", str(tmp_path), "--no-calibrate", "--verify", "none", "--name", "demo"]
    assert execute(["forge", "build", REPO, *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["converted_path"] == str(tmp_path / "demo")
    assert execute(["forge", "probe", "org/absent", "--json"]) != 0
    assert json.loads(capsys.readouterr().out)["reasons"]


def test_discover_prints_what_the_hub_has(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"model_type": "glm4_moe", "num_nextn_predict_layers": 1}
    hub.add("org/glm", {}, tags=["safetensors", "glm4_moe"], config=config, downloads=3)
    assert execute(["forge", "discover", "--query", "org/", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["repo"], row["has_mtp"]) == ("org/glm", True)
    assert execute(["forge", "discover", "--query", "org/"]) == 0
    assert "org/glm" in capsys.readouterr().out
    assert execute(["forge", "discover", "--query", "nothing/"]) == 0
    assert "nothing found" in capsys.readouterr().err
