"""`mtplx forge publish` on this machine: what it shows, refuses and asks before anything is sent."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.support.published import make_artifact, read_contract, write_contract
from tests.support.publishing import Publisher

if TYPE_CHECKING:
    from pathlib import Path

REPO = "org/model"


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Publisher:
    """The command, without a token and without a network."""

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("something was sent")

    monkeypatch.setattr(httpx2.Client, "send", refuse)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "/nonexistent")
    return Publisher(monkeypatch, capsys)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return make_artifact(tmp_path / "artifact")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_dry_run_shows_checks_files_and_card_and_sends_nothing(
    publisher: Publisher, artifact: Path
) -> None:
    before = contents(artifact.parent)
    code, out, err = publisher(artifact, REPO, "--dry-run", "--private")
    assert (code, err) == (0, "")
    assert "Checks, all passed" in out
    assert "every byte is as it was verified" in out
    assert "model-00001-of-00002.safetensors  39672 bytes" in out
    assert f"to {REPO}" in out
    assert "| MTP, depth 2 | 61.5 | 2.05 |" in out
    assert contents(artifact.parent) == before


def test_dry_run_in_json_has_the_plan(publisher: Publisher, artifact: Path) -> None:
    shown = publisher(artifact, REPO, "--dry-run", "--json").json
    assert set(shown) == {
        "dry_run",
        "repo",
        "labels",
        "checks",
        "files",
        "total_bytes",
        "message",
        "card",
    }
    assert shown["dry_run"] is True
    assert all(check["passed"] for check in shown["checks"])
    assert shown["total_bytes"] == sum(shown["files"].values())
    assert shown["files"]["README.md"] == len(shown["card"].encode())
    assert shown["message"] == "Publish model with mtplx"


def test_failed_checks_end_the_command_with_every_reason(
    publisher: Publisher, artifact: Path
) -> None:
    (artifact / "LICENSE").unlink()
    (artifact / "code.py").write_text("")
    for flags in ([], ["--dry-run"]):
        code, out, err = publisher(artifact, REPO, *flags)
        assert (code, out) == (2, "")
        assert "3 of 12 checks failed" in err
        assert "code.py" in err
        assert "Give --license" in err
        assert "Nothing was sent." in err
        assert "Traceback" not in err


def test_failed_checks_in_json(publisher: Publisher, artifact: Path) -> None:
    (artifact / "code.py").write_text("")
    result = publisher(artifact, REPO, "--json")
    assert (result.code, result.err) == (2, "")
    failed = [check["id"] for check in result.json["checks"] if not check["passed"]]
    assert failed == ["no_unexpected_files"]
    assert result.json["error"]["code"] == "usage"


def test_an_unverified_artifact_is_published_by_force_only(
    publisher: Publisher, artifact: Path
) -> None:
    write_contract(artifact, {**read_contract(artifact), "exactness": None})
    code, _, err = publisher(artifact, REPO, "--dry-run")
    assert code == 2
    assert "no passed exactness test" in err
    shown = publisher(artifact, REPO, "--dry-run", "--force-unverified", "--json").json
    assert shown["labels"] == ["unverified"]
    assert "**Unverified.**" in shown["card"]
    assert shown["message"].endswith("(unverified)")


def test_no_token_is_told_before_anything_is_sent(publisher: Publisher, artifact: Path) -> None:
    code, out, err = publisher(artifact, REPO)
    assert (code, out) == (2, "")
    assert "There is no hub token" in err


def test_a_missing_folder_has_its_exit_code(publisher: Publisher, tmp_path: Path) -> None:
    result = publisher(tmp_path / "nowhere", REPO, "--json")
    assert result.code == result.json["error"]["exit_code"] == 3


@pytest.mark.parametrize("place", [".", "runs/one"])
def test_a_run_folder_inside_the_artifact_is_refused(
    publisher: Publisher, artifact: Path, place: str
) -> None:
    code, _, err = publisher(artifact, REPO, "--out", str(artifact / place))
    assert code == 2
    assert "would become part of it" in err
    assert not (artifact / "runs").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_publishing_is_confirmed_first(
    publisher: Publisher, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_some")
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    code, _, err = publisher.run(str(artifact), "--repo", REPO, "--private")
    assert code == 130
    assert f"Publish 10 files, 0.00 GB, to {REPO} (private)?" in err


def test_without_a_terminal_yes_has_to_be_given(
    publisher: Publisher, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_some")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, _, err = publisher.run(str(artifact), "--repo", REPO)
    assert code == 2
    assert "--yes" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("hf_some\n"))
    code, _, err = publisher.run(str(artifact), "--repo", REPO, "--token-stdin")
    assert code == 2
    assert "--yes" in err


def test_the_card_of_the_user_is_taken(
    publisher: Publisher, artifact: Path, tmp_path: Path
) -> None:
    readme = tmp_path / "mine.md"
    readme.write_text("---\nlanguage: en\n---\n# Mine\n\nHello.\n")
    shown = publisher(artifact, REPO, "--dry-run", "--json", "--readme-path", str(readme)).json
    assert "# Mine" in shown["card"]
    assert "language: en" in shown["card"]
    assert json.dumps(shown)
