"""A model whose chat template is missing, or lies in a file of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mtplx.demo import demo_model_path
from mtplx.runtime.server.app import build_app
from tests.support.real_service import real_service
from tests.support.scripted_service import client_of

PROMPT = {"prompt": "def add(a, b):", "max_tokens": 4}
MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


@pytest.fixture
def folder(tmp_path: Path) -> tuple[Path, str]:
    """The demo model without its template, and the template."""
    folder = tmp_path / "model"
    shutil.copytree(demo_model_path(), folder)
    (folder / "mtplx_runtime.json").unlink(missing_ok=True)
    config = folder / "tokenizer_config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    jinja = folder / "chat_template.jinja"
    template = settings.pop("chat_template", None) or jinja.read_text(encoding="utf-8")
    jinja.unlink(missing_ok=True)
    config.write_text(json.dumps(settings), encoding="utf-8")
    return folder, template


def test_without_a_template_prompts_are_answered_and_messages_refused(
    folder: tuple[Path, str],
) -> None:
    with real_service(folder[0]) as service, client_of(build_app(service)) as http:
        name = {"model": service.model.name}
        assert http.post("/v1/completions", json=name | PROMPT).status_code == 200
        for path in ("/v1/chat/completions", "/v1/messages"):
            answer = http.post(path, json=name | MESSAGES)
            assert answer.status_code == 400
            assert "no chat template" in answer.json()["error"]["message"]
        assert any("/v1/completions alone" in text for text in service.model.warnings)
        assert service.model.warnings[-1] in http.get("/health/ready").json()["warnings"]


def test_a_template_in_a_file_of_its_own_is_found(folder: tuple[Path, str]) -> None:
    (folder[0] / "chat_template.jinja").write_text(folder[1], encoding="utf-8")
    with real_service(folder[0]) as service, client_of(build_app(service)) as http:
        answer = http.post("/v1/chat/completions", json={"model": service.model.name} | MESSAGES)
        assert answer.status_code == 200
        assert not any("template" in text for text in service.model.warnings)
