"""The examples run, against a trained model."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from types import ModuleType

import pytest

from tests.support.checkpoints import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_openais_client(trained_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert example("openai_client").main(trained_url) == 0
    shown = capsys.readouterr().out
    assert "the same text without MTP: True" in shown
    assert "of them drafted" in shown
    assert not shown.rstrip().endswith(" 0 of them read before")


def test_a_loop_of_tools(trained_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert example("tool_loop").main(trained_url, "What is the weather in Paris?") == 0
    shown = capsys.readouterr().out
    assert 'get_weather({"city": "Paris"})' in shown
    assert "The answer is 21 C." in shown


def test_an_answer_in_a_form(trained_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("json_schema")
    assert module.main(trained_url, "It crashes.") == 0
    module.Ticket.model_validate_json(capsys.readouterr().out)


@pytest.mark.slow
def test_anthropics_client(trained_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert example("anthropic_client").main(trained_url, "qwen3_5") == 0
    assert "The answer is 42." in capsys.readouterr().out


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("bash")), reason="needs curl, bash")
def test_curl(trained_url: str) -> None:
    done = subprocess.run(
        ["bash", str(EXAMPLES / "curl.sh"), trained_url],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "# qwen3_5 answers" in done.stdout
    assert "data: [DONE]" in done.stdout
    assert '"scheduler_mode":"serial"' in done.stdout
