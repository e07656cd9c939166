"""Credentials and local paths are found wherever they hide, and nowhere else."""

from __future__ import annotations

import json
import random
import socket
import string
from pathlib import Path
from typing import Any

import pytest

from mtplx.forge.publish.secrets import find_secrets
from mtplx.forge.publish.texts import local_paths, raw_text, visible_text
from tests.support.checkpoints import TRAINED, TrainedName, require_checkpoint
from tests.support.tensorfile import encode, write_tensors

# Put together here, so that no scanner takes this file for a leak.
LETTERS = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
SECRETS: dict[str, str] = {
    "Hugging Face token": "hf_" + LETTERS[:34],
    "API key": "sk-" + "proj-" + LETTERS,
    "AWS access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "GitHub token": "ghp_" + LETTERS[:36],
    "GitLab token": "glpat-" + LETTERS[:20],
    "Slack token": "xoxb-" + "1234567890-abc",
    "Google API key": "AIza" + LETTERS[:35],
    "JSON web token": "eyJ" + LETTERS[:12] + ".eyJ" + LETTERS[:14] + "." + LETTERS[:20],
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "authorization header": "Authorization: " + "Bearer " + LETTERS,
    "password in a web address": "https://me:" + "pass1word@example.org/x",
}
HARMLESS = [
    "the bearer of this letter, and basic authorization: none",
    "hf_hub_download, hf_transfer and sk-learn, risk-" + "a" * 30,
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "https://example.org:8080/a@b and user@example.org, see http://[::1]:80/",
    "-----BEGIN CERTIFICATE----- eyJhbGciOiJIUzI1NiJ9 AKIA glpat- xoxb-",
    '{"Bearer": 12345, "Ġsk": 7, "://": 9, "x:y@z": 10}',
]


@pytest.mark.parametrize("kind", SECRETS)
def test_each_kind_is_found_with_its_line(kind: str) -> None:
    found = find_secrets(f"one\ntwo {SECRETS[kind]} three\n{SECRETS[kind]}")
    assert [(secret.kind, secret.line) for secret in found] == [(kind, 2)]
    assert SECRETS[kind] not in repr(found)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_one_is_left_alone(text: str) -> None:
    assert find_secrets(text) == ()


@pytest.mark.parametrize("name", TRAINED)
def test_tokenizers_of_trained_models_raise_no_alarm(name: TrainedName) -> None:
    folder = require_checkpoint(name)
    for path in folder.glob("*"):
        text = raw_text(path)
        visible = visible_text(text)
        assert find_secrets(text) == find_secrets(visible) == ()
        assert local_paths(path.name, visible, Path("/models/org/name")) == ()


def test_a_large_vocabulary_raises_no_alarm(tmp_path: Path) -> None:
    chance = random.Random(0)
    signs = string.ascii_letters + string.digits + "-_/.+=:@\\"
    words = {"".join(chance.choices(signs, k=chance.randint(1, 24))) for _ in range(40_000)}
    words |= {"/home", "/home/", "Bearer", "sk-", "hf_", "://", "/Users/x", "C:\\Users\\"}
    model = {"vocab": {word: i for i, word in enumerate(sorted(words))}, "merges": [["/tmp", "/a"]]}
    text = json.dumps({"model": model})
    assert find_secrets(text) == ()
    assert local_paths("tokenizer.json", visible_text(text), tmp_path) == ()
    assert local_paths("vocab.json", json.dumps(model["vocab"]), tmp_path) == ()


@pytest.mark.parametrize(
    "path",
    [
        "/home/me/models/x",
        "/Users/me/x",
        "/root/.cache/x",
        "/tmp/run-7",
        "/mnt/disk/x",
        "/private/var/x",
        "/var/folders/ab/cd",
        "C:\\Users\\me\\x",
        "file:///home/me",
    ],
)
def test_paths_of_machines_are_found_in_plain_text_and_in_json(path: str, tmp_path: Path) -> None:
    for text in (f"made in {path}.", json.dumps({"a": [{"b": path}]}), json.dumps({path: 1})):
        assert local_paths("config.json", visible_text(text), tmp_path), text
    escaped = json.dumps({"a": path}).replace("/", "\\/")
    assert local_paths("config.json", visible_text(escaped), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/home/me",
        "and/or",
        "~/home",
        "a/tmp/x",
        "/home",
        "/v1/chat",
        "5/Users/7",
    ],
)
def test_addresses_and_words_are_no_paths(text: str, tmp_path: Path) -> None:
    assert local_paths("README.md", text, tmp_path) == ()


def test_places_and_name_of_this_machine_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/data/people/me"))
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-box-17")
    folder = Path("/storage/models/artifact")
    found = local_paths("x", "on gpu-box-17, /data/people/me/x, /storage/models/run-1", folder)
    assert found == ("/data/people/me", "/storage/models", "gpu-box-17")
    assert local_paths("x", "gpu-box-170 and /storage/modelsx", folder) == ()
    monkeypatch.setattr(socket, "gethostname", lambda: "laptop")
    assert local_paths("x", "on a laptop", folder) == ()


def test_escapes_in_json_hide_no_secret() -> None:
    token = SECRETS["Hugging Face token"]
    hidden = '{"a": "\\u0068' + token[1:] + '"}'
    assert find_secrets(hidden) == ()
    assert find_secrets(visible_text(hidden))


def test_text_of_a_weight_file_is_its_header(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "model.safetensors"
    values: dict[str, Any] = {"some.weight": encode(np.zeros(2, np.float32), "F32")}
    write_tensors(path, values, made_by="/home/me/train.py")
    text = raw_text(path)
    assert "some.weight" in text
    assert "/home/me/train.py" in text
