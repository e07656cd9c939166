"""`mtplx run` against a scripted model: prompts, flags, streams, errors."""

import io
import json
import sys
from pathlib import Path

import pytest

from mtplx.contracts.errors import CorruptModelError, NumericError
from mtplx.demo import demo_model_path
from mtplx.main import execute
from tests.support.fake_model import STATS, FakeModel


def run(model: FakeModel, *arguments: str) -> int:
    return execute(["run", *arguments], load=model.load)


def pipe_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def test_the_answer_alone_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel(warnings=("no head here",))
    assert run(model, "hi", "--model", "m") == 0
    out, err = capsys.readouterr()
    assert out == "echo hi\n"
    assert err == "warning: no head here\n"


def test_no_model_named_uses_the_demo_model_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = FakeModel()
    assert run(model, "hi") == 0
    assert model.load_arguments["path"] == demo_model_path()
    assert f"bundled demo model in {demo_model_path()}" in capsys.readouterr().err


def test_the_model_of_the_settings_is_used(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text('model = "~/there"\n')
    model = FakeModel()
    assert run(model, "hi") == 0
    assert model.load_arguments["path"] == Path.home() / "there"
    assert capsys.readouterr().err == ""


def test_quiet_shows_no_notes_and_no_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FakeModel(warnings=("w",)), "hi", "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_every_flag_reaches_the_model() -> None:
    model = FakeModel()
    flags = (
        "--system S --raw --max-tokens 9 --depth 3 --acceptance block --temperature 0.5 "
        "--top-p 0.9 --top-k 40 --min-p 0.1 --repetition-penalty 1.1 --presence-penalty 0.2 "
        "--frequency-penalty 0.3 --logit-bias 5=-2 --logit-bias 6=1.5 --seed 4 --stop A --stop B "
        "--prefill-chunk 64 --kv-bits 4 --mtp"
    )
    assert run(model, "hi", *flags.split()) == 0
    assert (model.load_arguments["mtp"], model.load_arguments["kv_bits"]) == (True, 4)
    [(prompt, options)] = model.calls
    assert prompt == "hi"
    assert options == {
        "system": "S",
        "raw": True,
        "max_tokens": 9,
        "depth": 3,
        "mtp": True,
        "acceptance": "block",
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "logit_bias": {5: -2.0, 6: 1.5},
        "seed": 4,
        "stop": ("A", "B"),
        "prefill_chunk": 64,
    }


def test_what_nobody_said_is_left_to_the_model() -> None:
    model = FakeModel()
    run(model, "hi")
    [(_, options)] = model.calls
    assert "temperature" not in options
    assert "seed" not in options
    assert options["depth"] == "auto"


def test_a_depth_of_the_settings_yields_where_there_is_no_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MTPLX_DEPTH", "3")
    headless, head = FakeModel(has_head=False), FakeModel()
    run(headless, "hi")
    run(head, "hi")
    assert headless.calls[0][1]["depth"] == "auto"
    assert head.calls[0][1]["depth"] == 3


def test_an_explicit_depth_is_passed_on_without_a_head() -> None:
    model = FakeModel(has_head=False)
    run(model, "hi", "--depth", "3")
    assert model.calls[0][1]["depth"] == 3


def test_insisting_on_mtp_without_a_head_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FakeModel(has_head=False), "hi", "--mtp") == 6
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: --mtp asks for" in err


def test_no_mtp_leaves_the_head_unloaded() -> None:
    model = FakeModel()
    assert run(model, "hi", "--no-mtp") == 0
    assert model.load_arguments["mtp"] is False
    assert model.calls[0][1]["mtp"] is False


def test_stats_follow_the_answer_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FakeModel(), "hi", "--quiet", "--stats") == 0
    out, err = capsys.readouterr()
    assert out == "echo hi\n"
    assert "mtp, depth 2, coupled, seed 7" in err
    assert "2 of 2 accepted (1.000)" in err
    assert "v 1.000 1.200, c 0.100, o -" in err


def test_json_is_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FakeModel(warnings=("w",)), "hi", "--json", "--stats") == 0
    out, err = capsys.readouterr()
    assert err == ""
    result = json.loads(out)
    assert result["text"] == "echo hi"
    assert result["stats"] == STATS


def test_text_appears_before_the_answer_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel(pieces=("first ", KeyboardInterrupt()))
    assert run(model, "hi", "--quiet") == 130
    out, err = capsys.readouterr()
    assert out == "first "
    assert err == "\ninterrupted\n"


def test_an_interrupt_under_json_is_an_error_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FakeModel(pieces=(KeyboardInterrupt(),)), "hi", "--json") == 130
    out, err = capsys.readouterr()
    assert json.loads(out) == {"error": {"code": "interrupted", "exit_code": 130}}
    assert err == ""


def test_the_prompt_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("a\nb\n", encoding="utf-8")
    model = FakeModel()
    assert run(model, "--file", str(tmp_path / "p.txt")) == 0
    assert model.calls[0][0] == "a\nb"


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_the_prompt_comes_from_a_pipe(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe_in(monkeypatch, "añb\r\n".encode())
    model = FakeModel()
    assert run(model, *arguments) == 0
    assert model.calls[0][0] == "añb"


def test_a_raw_prompt_from_a_pipe_is_kept_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_in(monkeypatch, b"def f():\n")
    model = FakeModel()
    assert run(model, "--raw") == 0
    assert model.calls[0][0] == "def f():\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hi", "--max-tokens", "0"], "--max-tokens"),
        (["hi", "--depth", "9"], "--depth"),
        (["hi", "--depth", "deep"], "'deep'"),
        (["hi", "--acceptance", "magic"], "--acceptance"),
        (["hi", "--top-k", "many"], "--top-k"),
        (["hi", "--logit-bias", "5:1"], "'5:1'"),
        (["hi", "--no-mtp", "--depth", "3"], "contradict"),
        (["hi", "--depht", "3"], "--depht"),
        ([""], "the prompt is empty"),
        (["hi", "--file", "p.txt"], "given twice"),
        (["--file", "/nonexistent/p.txt"], "/nonexistent/p.txt"),
        (["a\udcff"], "not UTF-8"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_message(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(FakeModel(), *arguments, "--model", "m") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert words in err
    assert err.splitlines()[-1].startswith("hint: ")


def test_a_prompt_that_is_not_utf8_names_the_byte(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe_in(monkeypatch, b"ab\xff")
    assert run(FakeModel()) == 2
    assert "byte 2 is 0xff" in capsys.readouterr().err


def test_errors_under_json_are_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    error = CorruptModelError("model.safetensors: truncated", hint="Download it again.")
    assert run(FakeModel(load_error=error), "hi", "--json") == 4
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["error"] == {
        "code": "corrupt_model",
        "title": "Corrupt model",
        "message": "model.safetensors: truncated",
        "hint": "Download it again.",
        "exit_code": 4,
    }


def test_an_error_in_the_middle_of_an_answer_keeps_its_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(FakeModel(pieces=("so ", NumericError("NaN logits"))), "hi", "--quiet") == 9
    assert capsys.readouterr() == ("so ", "error: NaN logits\n")


def test_a_bug_is_reported_without_traceback_unless_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = FakeModel(pieces=(ZeroDivisionError("oops"),))
    assert run(model, "hi", "--quiet") == 1
    err = capsys.readouterr().err
    assert "error: ZeroDivisionError: oops" in err
    assert "Traceback" not in err
    monkeypatch.setenv("MTPLX_DEBUG", "1")
    assert run(model, "hi", "--quiet") == 1
    assert "Traceback" in capsys.readouterr().err
