"""Profiles and settings on their way to the model: what `run` and `chat` make of them."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from mtplx.main import execute
from mtplx.profiles import PROFILES
from tests.support.fake_model import FakeModel


def run(model: FakeModel, *arguments: str) -> dict[str, Any]:
    """Answer one prompt; the options that reached the model."""
    assert execute(["run", "hi", "--model", "./m", *arguments], load=model.load) == 0
    return model.calls[-1][1]


@pytest.mark.parametrize("name", PROFILES)
def test_every_option_of_a_profile_reaches_the_model(name: str) -> None:
    model = FakeModel()
    reached = {**run(model, "--profile", name), "kv_bits": model.load_arguments["kv_bits"]}
    wanted = dict(PROFILES[name].options)
    if wanted.get("kv_bits") == "off":
        wanted["kv_bits"] = None
    assert {key: reached[key] for key in wanted} == wanted


def test_chat_takes_a_profile_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hi\n")))
    model = FakeModel()
    arguments = ["chat", "--model", "./m", "--profile", "burst"]
    assert execute(arguments, load=model.load) == 0
    assert model.calls[0][1]["depth"] == 3


def test_a_flag_goes_before_the_profile_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel()
    options = run(model, "--profile", "sustained", "--kv-bits", "off", "--prefill-chunk", "7")
    assert (model.load_arguments["kv_bits"], options["prefill_chunk"]) == (None, 7)
    assert capsys.readouterr().err == ""


def test_a_setting_that_goes_before_the_profile_asked_for_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.toml").write_text("depth = 1\nprefill_chunk = 8192\n")
    monkeypatch.setenv("MTPLX_ACCEPTANCE", "block")
    options = run(FakeModel(), "--profile", "burst")
    assert (options["depth"], options["acceptance"]) == (1, "block")
    assert capsys.readouterr().err == (
        f"note: depth is 1 by {home / 'config.toml'}, not 3 by the profile\n"
        "note: acceptance is block by the environment variable MTPLX_ACCEPTANCE, "
        "not coupled by the profile\n"
    )


def test_a_profile_of_the_file_is_used_without_a_word(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.toml").write_text('profile = "burst"\ndepth = 1\n')
    options = run(FakeModel())
    assert (options["depth"], options["prefill_chunk"]) == (1, 8192)
    assert capsys.readouterr().err == ""


def test_a_profile_that_drafts_yields_where_there_is_no_head() -> None:
    assert run(FakeModel(has_head=False), "--profile", "burst")["depth"] == "auto"
    assert run(FakeModel(), "--profile", "burst", "--no-mtp")["depth"] == "auto"


def test_a_profile_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", "hi", "--profile", "fast"], load=FakeModel().load) == 2
    assert "stable, sustained, turbo, burst, exact" in capsys.readouterr().err


def test_sampling_values_of_the_settings_are_used_and_flags_go_before_them(home: Path) -> None:
    (home / "config.toml").write_text("temperature = 0.5\ntop_k = 40\nkv_bits = 8\n")
    model = FakeModel()
    options = run(model, "--temperature", "0")
    assert (options["temperature"], options["top_k"]) == (0.0, 40)
    assert model.load_arguments["kv_bits"] == 8
    assert "top_p" not in options
