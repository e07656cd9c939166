"""Atomic writing and hashing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from mtplx.contracts import files
from mtplx.contracts.errors import ResourceError, UsageError


def test_writes_replace_the_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    files.write_text(path, "a long first version")
    files.write_bytes(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_json_keeps_order_and_characters(tmp_path: Path) -> None:
    files.write_json(tmp_path / "x.json", {"b": "é", "a": [1]})
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"b": "é", "a": [1]}
    assert text.index('"b"') < text.index('"a"')
    assert "é" in text
    assert text.endswith("}\n")


def test_json_that_others_cannot_read_is_refused_before_writing(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "x.json", {"a": float("nan")})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_permissions_are_as_asked_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    old = os.umask(0o022)
    try:
        files.write_text(tmp_path / "x", "secret", mode=mode)
    finally:
        os.umask(old)
    assert (tmp_path / "x").stat().st_mode & 0o777 == mode


def test_link_is_replaced_and_its_target_untouched(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    (tmp_path / "link").symlink_to(target)
    files.write_text(tmp_path / "link", "new")
    assert target.read_text() == "old"
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failure_leaves_the_old_content_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(ResourceError, match=str(path)) as caught:
        files.write_text(path, "new")
    assert caught.value.exit_code == 8
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_disk_before_the_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(handle: int) -> None:
        steps.append("fsync")
        fsync(handle)

    def noted_replace(self: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    files.write_text(tmp_path / "x", "new")
    assert steps == ["fsync", "replace", "fsync"]


def test_folder_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none/x"):
        files.write_text(tmp_path / "none" / "x", "new")


def test_hash_is_sha256_and_reports_every_byte(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000
    (tmp_path / "x").write_bytes(data)
    seen: list[int] = []
    digest = files.sha256_file(tmp_path / "x", on_bytes=seen.append)
    assert digest == hashlib.sha256(data).hexdigest()
    assert sum(seen) == len(data)
    assert len(seen) > 1


def test_hash_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert files.sha256_file(tmp_path / "empty").startswith("e3b0c44298fc1c14")
