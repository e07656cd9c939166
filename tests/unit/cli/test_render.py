"""Rich output on a terminal, plain output anywhere else."""

import io

import pytest

from mtplx.contracts.errors import UsageError
from mtplx.render import Row, is_rich, print_error, print_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def colourful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


ROWS = [Row("depth 1", "0.9 [bold]"), Row("tier", "verified")]


def test_a_table_in_a_file_is_aligned_and_plain() -> None:
    stream = io.StringIO()
    print_table(stream, "Facts", ROWS)
    assert stream.getvalue() == "Facts\n  depth 1  0.9 [bold]\n  tier     verified\n"


def test_a_table_on_a_terminal_is_styled_and_shows_values_literally() -> None:
    stream = Terminal()
    print_table(stream, "Facts", ROWS)
    assert "\x1b[" in stream.getvalue()
    assert "0.9 [bold]" in stream.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_can_ask_for_plain_output(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_rich(Terminal())
    monkeypatch.setenv(name, value)
    stream = Terminal()
    print_table(stream, "Facts", ROWS)
    print_error(stream, UsageError("wrong", hint="right"))
    assert "\x1b" not in stream.getvalue()


def test_an_error_on_a_terminal_keeps_its_brackets_and_its_line() -> None:
    stream = Terminal()
    message = "expected [1, 2], found " + "x" * 300
    print_error(stream, UsageError(message))
    assert message in stream.getvalue()


def test_an_error_without_hint_is_one_line() -> None:
    stream = io.StringIO()
    print_error(stream, UsageError("wrong"))
    assert stream.getvalue() == "error: wrong\n"
