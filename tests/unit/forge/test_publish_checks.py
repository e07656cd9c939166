"""Each check before publishing: passing on a sound artifact, failing with a reason and a way out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtplx.contracts.errors import NotAModelError, UsageError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.runtime_contract import RuntimeContract
from mtplx.forge.publish import checks
from mtplx.forge.publish.preparation import Publication, PublishRequest, prepare_publication
from tests.support import disk
from tests.support.contracts import content_of
from tests.support.published import make_artifact, read_contract, write_contract

if TYPE_CHECKING:
    from collections.abc import Callable

REPO = "org/model"
CHECKS = {
    "repo_id_explicit",
    "runtime_contract_exists",
    "no_symlinks",
    "no_special_files",
    "no_unexpected_files",
    "file_sizes",
    "inspect_verified",
    "license_valid",
    "model_card_valid",
    "all_searched",
    "no_local_paths",
    "no_secrets",
}
SECRET = "hf_" + "abcdefghij0123456789ABCDEFGHIJ"


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return make_artifact(tmp_path / "artifact")


def prepared(folder: Path, **options: Any) -> Publication:
    return prepare_publication(PublishRequest(folder, options.pop("repo", REPO), **options))


def failures(publication: Publication) -> dict[str, str]:
    """The failed checks, each with all that it says."""
    found = [check for check in publication.checks if not check.passed]
    assert all(check.fix for check in found)
    return {check.id: f"{check.message}. {check.fix}" for check in found}


def edit_contract(folder: Path, **changes: Any) -> None:
    write_contract(folder, {**read_contract(folder), **changes})


def test_a_sound_artifact_passes_every_check_and_stays_as_it_is(artifact: Path) -> None:
    before = {path: path.read_bytes() for path in artifact.rglob("*") if path.is_file()}
    calls: list[tuple[int, int]] = []
    publication = prepare_publication(
        PublishRequest(artifact, REPO), lambda done, total: calls.append((done, total))
    )
    assert failures(publication) == {}
    assert {check.id for check in publication.checks} == CHECKS
    assert publication.labels == ()
    publication.require_passed()
    assert calls[-1][0] == calls[-1][1] > 70_000
    assert before == {path: path.read_bytes() for path in artifact.rglob("*") if path.is_file()}


def test_all_failures_are_told_at_once_with_what_to_do(artifact: Path) -> None:
    (artifact / "LICENSE").unlink()
    (artifact / "train.py").write_text("import os")
    publication = prepared(artifact, repo="nobody")
    with pytest.raises(UsageError) as caught:
        publication.require_passed()
    message = caught.value.message
    assert "4 of 12 checks failed" in message
    for words in ("- repo_id_explicit: 'nobody'", "- no_unexpected_files: 1 ", "- license_valid: "):
        assert words in message
    assert "train.py" in message
    assert "Expected ORG/NAME" in message
    assert caught.value.hint == "Nothing was sent."


@pytest.mark.parametrize("folder", ["absent", "artifact/LICENSE"])
def test_what_is_no_folder_is_refused(artifact: Path, folder: str) -> None:
    with pytest.raises(NotAModelError, match="is not a folder"):
        prepared(artifact.parent / folder)


@pytest.mark.parametrize("repo", ["", "model", "a/b/c", "org/", "/model", "org/a b", "org/a..b"])
def test_a_repository_needs_owner_and_name(artifact: Path, repo: str) -> None:
    assert set(failures(prepared(artifact, repo=repo))) == {"repo_id_explicit"}


# The contract


def test_a_folder_without_a_contract_is_no_artifact(artifact: Path) -> None:
    (artifact / CONTRACT_NAME).unlink()
    found = failures(prepared(artifact, force_unverified=True))
    assert f"there is no {CONTRACT_NAME}" in found["runtime_contract_exists"]
    assert "forge build" in found["runtime_contract_exists"]


def test_a_contract_of_another_tool_is_not_ours_to_publish(artifact: Path) -> None:
    contract = read_contract(artifact)
    write_contract(artifact, {k: v for k, v in contract.items() if k != "schema_version"})
    found = failures(prepared(artifact, force_unverified=True))
    assert "another tool" in found["runtime_contract_exists"]


@pytest.mark.parametrize("key", ["head", "content"])
def test_a_contract_without_head_or_content_is_incomplete(artifact: Path, key: str) -> None:
    edit_contract(artifact, **{key: None})
    found = failures(prepared(artifact, force_unverified=True))
    assert f"has no {key}" in found["runtime_contract_exists"]


def test_a_broken_contract_is_told(artifact: Path) -> None:
    (artifact / CONTRACT_NAME).write_text("{")
    assert "not a valid JSON" in failures(prepared(artifact))["runtime_contract_exists"]


# Files


def test_links_are_refused(artifact: Path, tmp_path: Path) -> None:
    (artifact / "LICENSE").rename(tmp_path / "elsewhere")
    (artifact / "LICENSE").symlink_to(tmp_path / "elsewhere")
    (artifact / "more").symlink_to(tmp_path)
    found = failures(prepared(artifact, license="mit"))["no_symlinks"]
    assert "2 symbolic links: LICENSE, more" in found
    assert "cp -L" in found


def test_a_pipe_is_refused_and_never_opened(artifact: Path) -> None:
    (artifact / "tokenizer_config.json").unlink()
    os.mkfifo(artifact / "tokenizer_config.json")
    assert "tokenizer_config.json" in failures(prepared(artifact))["no_special_files"]


@pytest.mark.parametrize(
    "name",
    ["train.py", ".cache/x.lock", "adapter.safetensors", "model.gguf", "docs/LICENSE", ".env"],
)
def test_files_that_are_no_part_of_an_artifact_are_refused(artifact: Path, name: str) -> None:
    (artifact / name).parent.mkdir(exist_ok=True)
    header = b"\x02\0\0\0\0\0\0\0{}"
    (artifact / name).write_bytes(header if name.endswith(".safetensors") else b"x")
    assert name in failures(prepared(artifact))["no_unexpected_files"]


def test_documents_belong_to_an_artifact(artifact: Path) -> None:
    for name in ("NOTICE", "LICENSE-MODEL", "README.md", "USE_POLICY.md"):
        (artifact / name).write_text("Text.")
    assert failures(prepared(artifact)) == {}


def test_files_too_large_for_the_hub_are_told(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "MAX_FILE_BYTES", 39_000)
    found = failures(prepared(artifact))
    assert set(found) == {"file_sizes"}
    assert "model-00001-of-00002.safetensors" in found["file_sizes"]
    assert "shard_size_gib" in found["file_sizes"]


# Verified


def losing(folder: Path) -> None:
    edit_contract(folder, speed_evidence={"depth": 1, "gain": 0.9, "gain_interval": [0.8, 0.99]})


def test_an_unverified_artifact_needs_force_and_is_labelled_everywhere(artifact: Path) -> None:
    losing(artifact)
    found = failures(prepared(artifact))
    assert set(found) == {"inspect_verified"}
    assert "no significant speed gain" in found["inspect_verified"]
    assert "--force-unverified" in found["inspect_verified"]

    forced = prepared(artifact, force_unverified=True)
    assert failures(forced) == {}
    assert forced.labels == ("unverified",)
    assert "**Unverified.**" in forced.card
    assert forced.message.endswith("(unverified)")
    contract = next(u for u in forced.uploads("public") if u.name == CONTRACT_NAME)
    assert isinstance(contract.content, bytes)
    assert json.loads(contract.content)["labels"] == ["unverified"]


def test_labels_of_the_contract_are_kept_and_unverified_is_judged_anew(artifact: Path) -> None:
    edit_contract(artifact, labels=["unverified", "uncalibrated"])
    publication = prepared(artifact)
    assert failures(publication) == {}
    assert publication.labels == ("uncalibrated",)
    assert "Unverified" not in publication.card


def test_changed_small_files_cannot_be_forced(artifact: Path) -> None:
    disk.edit_json(artifact / "generation_config.json", {"temperature": 0.3})
    for force in (False, True):
        found = failures(prepared(artifact, force_unverified=force))
        assert set(found) == {"inspect_verified"}
        assert (
            "differ from those of the contract: generation_config.json"
            in (found["inspect_verified"])
        )


def test_one_changed_bit_of_the_weights_is_found(artifact: Path) -> None:
    shard = artifact / "model-00002-of-00002.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    found = failures(prepared(artifact, force_unverified=True))
    assert "corrupt" in found["inspect_verified"]
    assert shard.name in found["inspect_verified"]


# Texts


def damaged_card(folder: Path) -> None:
    edit_contract(folder, verified_on={"host": "made in /home/someone/models"})


def in_tokenizer(folder: Path, text: str) -> None:
    path = folder / "tokenizer_config.json"
    disk.edit_json(path, {"name_or_path": text})
    edit_contract(folder, content=content_of(folder))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (damaged_card, CONTRACT_NAME),
        (lambda folder: in_tokenizer(folder, "/mnt/nfs/model"), "tokenizer_config.json"),
        (lambda folder: in_tokenizer(folder, str(folder)), "tokenizer_config.json"),
        (lambda folder: (folder / "NOTICE").write_text("see /Users/me/x"), "NOTICE"),
    ],
)
def test_local_paths_are_refused_wherever_they_are(
    artifact: Path, change: Callable[[Path], object], where: str
) -> None:
    change(artifact)
    found = failures(prepared(artifact))
    assert set(found) == {"no_local_paths"}
    assert f"{where}: /" in found["no_local_paths"]


def test_a_local_path_in_the_card_of_the_user_is_refused(artifact: Path, tmp_path: Path) -> None:
    readme = tmp_path / "card.md"
    readme.write_text("# Model\n\nTrained in /home/me/run.\n")
    found = failures(prepared(artifact, readme=readme))
    assert "README.md (new): /home/me" in found["no_local_paths"]


def test_the_old_card_is_not_searched_as_it_is_not_sent(artifact: Path) -> None:
    (artifact / "README.md").write_text(f"/home/me {SECRET}")
    assert failures(prepared(artifact)) == {}


@pytest.mark.parametrize("hidden", [False, True])
def test_secrets_are_refused_and_not_shown(artifact: Path, hidden: bool) -> None:
    in_tokenizer(artifact, SECRET)
    if hidden:
        path = artifact / "tokenizer_config.json"
        path.write_text(path.read_text().replace("hf_", "\\u0068f_"))
        edit_contract(artifact, content=content_of(artifact))
    publication = prepared(artifact)
    found = failures(publication)
    assert set(found) == {"no_secrets"}
    assert "tokenizer_config.json" in found["no_secrets"]
    assert "Hugging Face token" in found["no_secrets"]
    assert "revoke" in found["no_secrets"]
    assert SECRET not in found["no_secrets"]


def test_a_file_that_cannot_be_searched_is_told(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtplx.forge.publish.texts.MAX_JSON_BYTES", 3000)
    found = failures(prepared(artifact))
    assert set(found) == {"all_searched"}
    assert "model.safetensors.index.json" in found["all_searched"]


# Card and licence


def test_a_card_that_cannot_be_read_is_a_usage_error(artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--readme-path: .*absent\.md"):
        prepared(artifact, readme=tmp_path / "absent.md")
    (tmp_path / "latin.md").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="no UTF-8"):
        prepared(artifact, readme=tmp_path / "latin.md")


def test_a_bad_card_and_a_bad_licence_fail_their_checks(artifact: Path, tmp_path: Path) -> None:
    readme = tmp_path / "card.md"
    readme.write_text("---\nlicense: mit\nlanguage: 5\n---\nText.")
    assert "language" in failures(prepared(artifact, readme=readme))["model_card_valid"]
    assert set(failures(prepared(artifact, license="nope"))) == {
        "license_valid",
        "model_card_valid",
    }


# What will be sent


def test_files_are_those_of_the_folder_with_card_and_contract_made_anew(artifact: Path) -> None:
    publication = prepared(artifact)
    uploads = {upload.name: upload for upload in publication.uploads("public")}
    names = {path.name for path in artifact.iterdir()} | {"README.md"}
    assert set(uploads) == names == set(publication.files())
    assert {name: upload.size for name, upload in uploads.items()} == publication.files()
    for name, upload in uploads.items():
        if name not in ("README.md", CONTRACT_NAME):
            assert upload.content == artifact / name
            assert len(upload.sha256) == 64
    card, contract = uploads["README.md"].content, uploads[CONTRACT_NAME].content
    assert card == publication.card.encode()
    assert isinstance(contract, bytes)
    sent = RuntimeContract.model_validate(json.loads(contract))
    assert sent.forge_provenance is not None
    assert sent.forge_provenance.published_to_hf == {
        "repo": REPO,
        "visibility": "public",
        "license_spdx": "Apache-2.0",
    }
    assert sent.unproven() == ()
