"""A tiny model for benchmarks whose measurers are scripted: only its files are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import TinyFactory


@pytest.fixture(scope="session")
def folder(shared_tiny: TinyFactory) -> Path:
    """A model with a context of 4096 tokens."""
    return shared_tiny("mimo", vocab=300)
