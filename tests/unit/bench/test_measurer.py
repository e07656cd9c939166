"""A measuring process that fails says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplx.contracts.errors import BackendError, UnsupportedModelError
from mtplx.runtime.bench.measurer import MeasuringProcess, last_exception, open_own, open_stock
from tests.conftest import TinyFactory

TRACEBACK = """some log line
Traceback (most recent call last):
  File "x.py", line 1, in <module>
    raise KeyError
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "y.py", line 2, in <module>
    load()
ValueError: Received 2 parameters not in model:
model.layers.4.a.weight,
model.layers.4.b.weight.
"""


def test_the_last_exception_is_told_on_one_line() -> None:
    assert last_exception(TRACEBACK) == (
        "ValueError: Received 2 parameters not in model: model.layers.4.a.weight, model.layers.4.b.weight."
    )


def test_a_long_one_is_cut_and_a_text_without_one_gives_its_last_line() -> None:
    assert len(last_exception(f"RuntimeError: {'x' * 1000}")) == 303
    assert last_exception("one\n\nKilled\n") == "Killed"
    assert last_exception("") == "no message"


def test_mlx_lm_that_refuses_a_model_ends_with_its_reason(shared_tiny: TinyFactory) -> None:
    folder = shared_tiny("deepseek_v3", vocab=64)
    with pytest.raises(BackendError, match="the process of mlx-lm ended with code 1: ValueError"):
        open_stock(folder)


def test_a_process_that_is_killed_between_two_tasks_is_told(tmp_path: Path) -> None:
    with MeasuringProcess("mute", "tests.support.mute_process", tmp_path) as mute:
        mute._process.kill()
        mute._process.wait()
        with pytest.raises(BackendError, match="of mute ended with code -9: no message"):
            mute.room()


def test_a_model_that_does_not_load_is_the_error_that_loading_raised(
    shared_tiny: TinyFactory,
) -> None:
    folder = shared_tiny("deepseek_v3", vocab=64)
    with pytest.raises(UnsupportedModelError, match="latent attention"):
        open_own(folder, 8)
