"""`mtplx chat` against a scripted model."""

import io
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mtplx.contracts.errors import PromptTooLongError
from mtplx.main import execute
from tests.support.fake_model import FakeEvent, FakeModel


def chat(monkeypatch: pytest.MonkeyPatch, model: FakeModel, lines: str, *arguments: str) -> int:
    content = io.BytesIO(lines.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content, encoding="utf-8"))
    return execute(["chat", "--model", "m", *arguments], load=model.load)


def test_each_piped_line_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = FakeModel()
    assert chat(monkeypatch, model, "one\n\ntwo\n", "--system", "S", "--seed", "1") == 0
    out, err = capsys.readouterr()
    assert out == "echo 1:one\necho 2:two\n"
    assert err == ""
    assert model.calls[0] == (
        "session",
        {
            "system": "S",
            "max_tokens": 256,
            "depth": "auto",
            "acceptance": "coupled",
            "prefill_chunk": 512,
            "seed": 1,
        },
    )


def test_a_warning_of_an_answer_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = FakeModel(warnings=("slow",), answer_warnings=("max_tokens cut",))
    assert chat(monkeypatch, model, "one\ntwo\n") == 0
    err = capsys.readouterr().err
    assert err.count("warning: max_tokens cut") == 1
    assert err.count("warning: slow") == 1


def test_reset_forgets_the_conversation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, FakeModel(), "one\n/reset\ntwo\n") == 0
    assert capsys.readouterr().out == "echo 1:one\necho 1:two\n"


def test_exit_leaves_what_follows_unread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, FakeModel(), "/exit\none\n") == 0
    assert capsys.readouterr().out == ""


def test_stats_show_the_totals_and_the_last_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, FakeModel(), "one\n/stats\n") == 0
    out, err = capsys.readouterr()
    assert out == "echo 1:one\n"
    assert "acceptance    -" in err
    assert "decode tok s  1.500" in err
    assert "2 of 2 accepted" in err


def test_help_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, FakeModel(), "/help\n") == 0
    err = capsys.readouterr().err
    assert all(name in err for name in ("/reset", "/stats", "/exit", "/help"))


def test_an_unknown_command_is_not_sent_but_a_path_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, FakeModel(), "/rest\n/usr/bin\n/exit now\n") == 0
    out, err = capsys.readouterr()
    assert out == "echo 1:/usr/bin\necho 2:/exit now\n"
    assert "unknown command /rest" in err


class StoppableModel(FakeModel):
    """Is interrupted by real signals in the middle of its first answer."""

    num_signals = 1

    def stream(self, prompt: str, **options: Any) -> Iterator[FakeEvent]:
        if not prompt.startswith("1:"):
            yield from super().stream(prompt, **options)
            return
        yield FakeEvent("before ")
        for _ in range(self.num_signals):
            os.kill(os.getpid(), signal.SIGINT)
        yield FakeEvent("at ")
        yield FakeEvent("after ")


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    assert chat(monkeypatch, StoppableModel(), "one\ntwo\n") == 0
    out, err = capsys.readouterr()
    assert out == "before at \necho 2:two\n"
    assert err == "note: stopped; the conversation goes on\n"
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_second_ctrl_c_does_not_wait_for_the_round(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = StoppableModel()
    model.num_signals = 2
    assert chat(monkeypatch, model, "one\ntwo\n") == 0
    assert capsys.readouterr().out == "before \necho 2:two\n"


class SlowPrefillModel(FakeModel):
    """Is interrupted by a real signal while it reads the prompt."""

    def stream(self, prompt: str, **options: Any) -> Iterator[FakeEvent]:
        if prompt.startswith("1:"):
            os.kill(os.getpid(), signal.SIGINT)
        yield from super().stream(prompt, **options)


def test_ctrl_c_stops_a_long_prefill_between_chunks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, SlowPrefillModel(), "one\ntwo\n") == 0
    assert capsys.readouterr().out == "\necho 2:two\n"


@pytest.mark.parametrize(
    ("answers", "code"), [([KeyboardInterrupt, KeyboardInterrupt], 0), ([EOFError], 0)]
)
def test_ctrl_c_twice_or_ctrl_d_at_the_prompt_leaves(
    answers: list[type[BaseException]], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = iter(answers)

    def asked(_prompt: str) -> str:
        raise next(script)

    monkeypatch.setattr("builtins.input", asked)
    assert execute(["chat", "--model", "m"], load=FakeModel().load) == code
    assert next(script, None) is None


def test_ctrl_c_once_at_the_prompt_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script: Iterator[Any] = iter([KeyboardInterrupt(), "one", KeyboardInterrupt(), "/exit"])

    def asked(_prompt: str) -> str:
        answer = next(script)
        if isinstance(answer, BaseException):
            raise answer
        return str(answer)

    monkeypatch.setattr("builtins.input", asked)
    assert execute(["chat", "--model", "m"], load=FakeModel().load) == 0
    assert capsys.readouterr().out == "echo 1:one\n"


def test_a_refused_message_ends_a_piped_chat_with_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = FakeModel(pieces=(PromptTooLongError("too long"),))
    assert chat(monkeypatch, model, "one\ntwo\n") == 2
    assert capsys.readouterr().err == "error: too long\n"


def test_a_message_that_is_not_utf8_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", content)
    assert execute(["chat", "--model", "m"], load=FakeModel().load) == 2
    assert "not UTF-8" in capsys.readouterr().err
