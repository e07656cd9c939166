"""Settings: the order of their sources, and the words in which wrong ones are refused."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from mtplx.config import Config, config_file
from mtplx.contracts.errors import UsageError
from mtplx.runtime.scheduler.modes import SchedulerMode


def write(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text, encoding="utf-8")


def refusal(**explicit: object) -> str:
    with pytest.raises(UsageError) as caught:
        Config.load(**explicit)
    assert caught.value.hint
    return caught.value.message


def test_defaults_without_any_source() -> None:
    config = Config.load()
    assert config.scheduler_mode is SchedulerMode.SERIAL
    assert (config.model, config.depth, config.acceptance) == (None, "auto", "coupled")
    assert (config.max_tokens, config.prefill_chunk) == (256, 512)


def test_each_source_overrides_the_one_before(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, 'depth = 1\nmax_tokens = 11\nmodel = "from-file"\nscheduler_mode = "hyper"\n')
    monkeypatch.setenv("MTPLX_DEPTH", "2")
    monkeypatch.setenv("MTPLX_MAX_TOKENS", "22")
    config = Config.load(depth="3", prefill_chunk=None)
    assert config.scheduler_mode is SchedulerMode.HYPER
    assert (config.model, config.max_tokens, config.depth) == ("from-file", 22, 3)
    assert config.prefill_chunk == 512


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Config.load().depth = 3  # type: ignore[misc]


def test_the_home_variable_moves_the_file(home: Path) -> None:
    assert config_file() == home / "config.toml"


def test_without_the_home_variable_the_platform_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MTPLX_HOME")
    assert config_file().parts[-2:] == ("mtplx", "config.toml")


@pytest.mark.parametrize(
    ("line", "key", "found"),
    [
        ("depth = 9", "depth", "9"),
        ("depth = true", "depth", "True"),
        ('depth = "deep"', "depth", "'deep'"),
        ("max_tokens = 0", "max_tokens", "0"),
        ("model = 3", "model", "3"),
        ('scheduler_mode = "fast"', "scheduler_mode", "'fast'"),
        ('acceptance = "greedy"', "acceptance", "'greedy'"),
    ],
)
def test_a_wrong_value_in_the_file_names_file_key_and_value(
    home: Path, line: str, key: str, found: str
) -> None:
    write(home, line)
    message = refusal()
    assert f"{key!r} in {home / 'config.toml'}" in message
    assert "expected" in message
    assert message.endswith(f"found {found}")


def test_a_wrong_value_in_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MTPLX_PREFILL_CHUNK", "many")
    assert "MTPLX_PREFILL_CHUNK" in refusal()


def test_a_wrong_explicit_value_names_the_flag() -> None:
    assert "--max-tokens" in refusal(max_tokens=0)


def test_an_unknown_key_in_the_file_is_refused(home: Path) -> None:
    write(home, "dept = 3")
    message = refusal()
    assert "unknown setting 'dept'" in message
    assert "depth" in message


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLX_DEPHT", "3")
    assert "MTPLX_DEPHT" in refusal()


def test_an_unknown_explicit_key_is_refused() -> None:
    assert "unknown setting 'deep'" in refusal(deep=3)


@pytest.mark.parametrize("content", [b"depth = ", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_refused(home: Path, content: bytes) -> None:
    (home / "config.toml").write_bytes(content)
    assert str(home / "config.toml") in refusal()
