"""Where the token comes from, and that nothing shows one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants

from mtplx.contracts.errors import UsageError
from mtplx.forge.publish.token import find_token

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "hf_given"


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No token in the environment and no login; where a login would be."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    return tmp_path / "token"


def test_standard_input_comes_first_and_gives_its_first_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert find_token(io.StringIO(f"  {TOKEN}\r\nmore")) == TOKEN


def test_the_environment_comes_before_the_login(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody.write_text("hf_login\n")
    assert find_token() == "hf_login"
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert find_token() == TOKEN


def test_no_token_is_told_with_the_ways_to_give_one() -> None:
    with pytest.raises(UsageError, match="HF_TOKEN or the hub's login gave none") as caught:
        find_token()
    assert "--token-stdin" in caught.value.hint
    with pytest.raises(UsageError, match="standard input gave none"):
        find_token(io.StringIO("\n"))


@pytest.mark.parametrize("token", ["hf_a b", "hf_ä", "hf_\x00", "hf_" + "x" * 600])
def test_what_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(UsageError, match="characters that no token has") as caught:
        find_token(io.StringIO(token))
    assert token not in str(caught.value)
    assert token not in str(caught.value.to_json())


def test_a_token_is_not_typed_into_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with pytest.raises(UsageError, match="terminal"):
        find_token(Terminal(TOKEN))
