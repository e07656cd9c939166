"""What is decided about the back end before mlx is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from mtplx.kernels import backend


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch) -> Callable[[], backend.Backend]:
    """The decision anew, as if the CUDA wheel were installed; the one of this process stays."""
    monkeypatch.setattr(backend, "installed_backends", lambda: ["cuda"])
    # Set first, so that what the decision sets is taken back after the test.
    monkeypatch.setenv(backend.TF32_KEY, "")
    return backend.ensure_backend.__wrapped__


def test_float32_products_are_float32_on_cuda(decide: Callable[[], backend.Backend]) -> None:
    del os.environ[backend.TF32_KEY]
    assert decide().kind == "cuda"
    assert os.environ[backend.TF32_KEY] == "0"


def test_what_the_user_set_wins(decide: Callable[[], backend.Backend]) -> None:
    os.environ[backend.TF32_KEY] = "1"
    decide()
    assert os.environ[backend.TF32_KEY] == "1"


def test_the_hint_names_the_extras_of_this_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert "mtplx[cpu]" in backend.install_hint()
    assert "mtplx[cuda13]" in backend.install_hint()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "cuda" not in backend.install_hint()


def test_what_is_installed_is_listed_without_importing_it() -> None:
    kinds = backend.installed_backends()
    assert kinds
    assert set(kinds) <= {"metal", "cuda", "cpu"}
