"""Settings of the machine stay out of these tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty `MTPLX_HOME`, and no other variable of ours."""
    for name in [name for name in os.environ if name.startswith("MTPLX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MTPLX_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"
