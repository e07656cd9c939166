"""Models that several exactness tests decode with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from tests.conftest import TinyFactory
from tests.support.tiny import WINDOW
from tests.support.tiny_families import FamilyName


@pytest.fixture(scope="module")
def models(shared_tiny: TinyFactory) -> Callable[[FamilyName], Model]:
    """A tiny model of a family, loaded once a module; the Llama has a sliding window."""
    held: dict[str, Model] = {}

    def get(family: FamilyName) -> Model:
        if family not in held:
            options = {"config_overrides": WINDOW} if family == "llama" else {}
            held[family] = load(shared_tiny(family, **options))
        return held[family]

    return get
