"""What is kept of a failed start, and what is not."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from mtplx.contracts.errors import BackendError, InternalError, MTPLXError, UsageError
from mtplx.contracts.folders import state_folder
from mtplx.runtime.diagnostics import last_failure
from mtplx.runtime.diagnostics.last_failure import LastFailure
from mtplx.runtime.diagnostics.report import Check

PROMPT = "my very private question"


def recorded(error: MTPLXError, *arguments: str) -> LastFailure:
    last_failure.record_failure("run", arguments, error)
    found = last_failure.read_failure()
    assert isinstance(found, LastFailure)
    return found


def check_record() -> Check:
    return last_failure.check_last_failure(last_failure.read_failure(), last_failure.record_file())


def test_a_failure_is_kept_and_warned_about() -> None:
    found = recorded(BackendError("no MLX"))
    assert (found.command, found.code, found.exit_code, found.message) == (
        "run",
        "backend",
        7,
        "no MLX",
    )
    check = check_record()
    assert check.status == "warn"
    assert "mtplx run" in check.observed
    mode = (state_folder() / last_failure.NAME).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize("arguments", [(PROMPT,), (f"--system={PROMPT}",)])
def test_arguments_are_taken_out_of_the_message(arguments: tuple[str, ...]) -> None:
    found = recorded(BackendError(f"failed at {PROMPT!r}"), *arguments)
    assert found.message == "failed at '<argument>'"


def test_prompts_of_several_lines_and_with_a_slash_are_taken_out_and_the_model_is_not() -> None:
    prompt = "/explain\nmy secret"
    error = BackendError(f"/models/x failed at {prompt!r} ({prompt})")
    found = recorded(error, prompt, "--model", "/models/x")
    assert found.message == "/models/x failed at '<argument>' (<argument>)"
    assert found.model == "/models/x"
    assert recorded(error, f"--model={prompt}").model == prompt


def test_of_a_bug_only_the_kind_is_kept() -> None:
    assert recorded(InternalError(f"ValueError: {PROMPT}")).message == "ValueError"


def test_tokens_are_taken_out() -> None:
    token = "hf_abcdefghijklmnop"
    found = recorded(BackendError(f"server said {token}"), "--model", f"https://x:{token}@hub/y")
    assert token not in found.model_dump_json()
    assert found.model == "https://<secret>@hub/y"


def test_a_machine_that_knows_no_home_folder_keeps_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(Path, "home", unknown)
    assert recorded(BackendError("no MLX")).message == "no MLX"


def test_a_wrong_request_is_not_kept() -> None:
    last_failure.record_failure("run", [], UsageError("--depth 99"))
    assert last_failure.read_failure() is None
    assert check_record().status == "pass"


def test_success_of_the_same_command_removes_it() -> None:
    recorded(BackendError("no MLX"))
    last_failure.forget_failure("chat")
    assert last_failure.read_failure() is not None
    last_failure.forget_failure("run")
    assert last_failure.read_failure() is None


@pytest.mark.parametrize("content", ["", "[]", '{"schema_version": 2}', "\x00"])
def test_a_damaged_record_warns(content: str) -> None:
    state_folder().mkdir(parents=True, exist_ok=True)
    (state_folder() / last_failure.NAME).write_text(content)
    check = check_record()
    assert (check.status, "damaged" in check.observed) == ("warn", True)
    assert check.command.startswith("rm ")


def test_the_record_is_plain_json() -> None:
    recorded(BackendError("no MLX"))
    kept = json.loads((state_folder() / last_failure.NAME).read_text())
    assert set(kept) == set(LastFailure.model_fields)
