"""Progress shows for long work only, and goes away."""

import io

import pytest

from mtplx.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("mtplx.progress.time.monotonic", lambda: now[0])
    return now


def test_quick_work_shows_nothing(clock: list[float]) -> None:
    stream = io.StringIO()
    line = Progress(stream, shown=True, is_rich=False)
    clock[0] += 1
    line.update("loading", 0.5)
    assert stream.getvalue() == ""


def test_a_log_gets_a_line_now_and_then(clock: list[float]) -> None:
    stream = io.StringIO()
    line = Progress(stream, shown=True, is_rich=False)
    for second in range(12):
        clock[0] = 100.0 + second
        line.prefill(second, 20)
    assert stream.getvalue() == "reading 20 prompt tokens: 25%\nreading 20 prompt tokens: 50%\n"


def test_a_bar_disappears_when_closed(clock: list[float]) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    line = Progress(stream, shown=True, is_rich=True)
    clock[0] += 1
    line.update("loading [x]", 0.5)
    assert "loading [x]" in stream.getvalue()
    assert "50%" in stream.getvalue()
    line.close()
    assert "\x1b[2K" in stream.getvalue()
    size = len(stream.getvalue())
    line.update("loading", 1.0)
    assert len(stream.getvalue()) == size


def test_a_quiet_command_shows_none(clock: list[float]) -> None:
    stream = io.StringIO()
    line = Progress(stream, shown=False, is_rich=False)
    clock[0] += 100
    line.update("loading", 0.5)
    line.close()
    assert stream.getvalue() == ""
