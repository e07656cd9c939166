"""The installed command with the bundled model, as a user meets it."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mtplx.demo import demo_model_path

RESULT_KEYS = [
    "text",
    "prompt_token_ids",
    "token_ids",
    "finish_reason",
    "stop_sequence",
    "seed",
    "model",
    "tier",
    "generation_mode",
    "depth",
    "acceptance",
    "stats",
    "warnings",
    "tuning",
]
STATS_KEYS = [
    "prompt_tokens",
    "completion_tokens",
    "ttft_s",
    "prefill_tok_s",
    "decode_tok_s",
    "rounds",
    "drafted_by_depth",
    "accepted_by_depth",
    "acceptance_by_depth",
    "v",
    "c",
    "o",
]
TIMEOUT_S = 120
COMMAND = [sys.executable, "-m", "mtplx"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MTPLX_")}
    return {**kept, "MTPLX_HOME": str(tmp_path)}


def run(
    environment: dict[str, str], *arguments: str, text_in: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=text_in,
        capture_output=True,
        encoding="utf-8",
        env=environment,
        timeout=TIMEOUT_S,
    )


def run_json(environment: dict[str, str], *arguments: str) -> dict[str, object]:
    done = run(environment, "run", *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def test_a_prompt_is_answered_by_the_demo_model(environment: dict[str, str]) -> None:
    done = run(environment, "run", "Write a function that adds two numbers.", "--max-tokens", "24")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert done.stderr.startswith("note: no model named; using the bundled demo model")
    assert "\x1b" not in done.stdout + done.stderr


def test_json_has_exactly_the_promised_keys(environment: dict[str, str]) -> None:
    result = run_json(environment, "def add(a, b):", "--raw", "--max-tokens", "16", "--depth", "3")
    assert list(result) == RESULT_KEYS
    stats = result["stats"]
    assert isinstance(stats, dict)
    assert list(stats) == STATS_KEYS
    assert result["generation_mode"] == "mtp"
    assert result["depth"] == 3
    assert stats["completion_tokens"] == len(result["token_ids"])  # type: ignore[arg-type]
    assert stats["prompt_tokens"] == len(result["prompt_token_ids"])  # type: ignore[arg-type]


def test_the_seed_alone_decides_the_text(environment: dict[str, str]) -> None:
    arguments = ["class Stack:", "--raw", "--max-tokens", "32", "--temperature", "0.8"]
    drafted = run_json(environment, *arguments, "--seed", "5", "--depth", "3")
    plain = run_json(environment, *arguments, "--seed", "5", "--no-mtp")
    assert plain["generation_mode"] == "ar"
    assert drafted["token_ids"] == plain["token_ids"]


def test_a_piped_prompt_is_the_prompt(environment: dict[str, str]) -> None:
    arguments = ["--max-tokens", "12", "--temperature", "0", "--quiet"]
    piped = run(environment, "run", *arguments, text_in="Sort a list.\n")
    named = run(environment, "run", "Sort a list.", *arguments)
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == named.stdout
    assert piped.stderr == ""


def test_a_prompt_longer_than_the_context_is_refused(environment: dict[str, str]) -> None:
    done = run(environment, "run", "--raw", "--quiet", text_in="word " * 6000)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "4096" in done.stderr


def test_a_folder_that_is_no_model_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(environment, "run", "hi", "--model", str(tmp_path))
    assert done.returncode == 3
    assert str(tmp_path) in done.stderr
    assert "hint: " in done.stderr


def test_ctrl_c_in_an_answer_exits_with_130(environment: dict[str, str]) -> None:
    endless = ["--max-tokens", "3900", "--logit-bias", "8183=-1e3", "--logit-bias", "8185=-1e3"]
    process = subprocess.Popen(
        [*COMMAND, "run", "def f():", "--raw", "--quiet", *endless],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert err == b"\ninterrupted\n"


@pytest.mark.parametrize(("no_color", "is_styled"), [("1", False), ("", True)])
def test_no_color_makes_a_terminal_plain(
    no_color: str, is_styled: bool, environment: dict[str, str]
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "inspect", str(demo_model_path())],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "NO_COLOR": no_color, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    shown = read_all(ours)
    assert process.wait(timeout=TIMEOUT_S) == 0
    assert b"MTP head" in shown
    assert (b"\x1b[" in shown) is is_styled


def read_all(terminal: int) -> bytes:
    """Everything shown on a terminal until the command closes it."""
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # Linux reports the closed other end as an error
            piece = b""
        if not piece:
            os.close(terminal)
            return shown
        shown += piece


def test_a_scripted_chat_keeps_and_forgets_its_history(environment: dict[str, str]) -> None:
    arguments = ["--max-tokens", "16", "--temperature", "0", "--quiet"]
    script = "Add two numbers.\nNow subtract them.\n/stats\n/reset\nAdd two numbers.\n/exit\n"
    done = run(environment, "chat", *arguments, text_in=script)
    once = run(environment, "chat", *arguments, text_in="Add two numbers.\n")
    assert done.returncode == 0, done.stderr
    assert "Conversation" in done.stderr
    assert once.stdout.strip()
    assert done.stdout.startswith(once.stdout)
    assert done.stdout.endswith(once.stdout)
    assert len(done.stdout) > 2 * len(once.stdout)
