"""Settings every test runs under, and factories for tiny model folders."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ.pop("FORCE_COLOR", None)

from mtplx.kernels.backend import ensure_backend

# A BLAS can only be bound before mlx is imported, and test modules import mlx before mtplx.
ensure_backend()

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tiny_families import FamilyName

settings.register_profile(
    "mtplx", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("mtplx")


class TinyFactory(Protocol):
    """Builds a tiny folder from `build_tiny`'s options."""

    def __call__(self, family: FamilyName, **options: Any) -> Path:
        """Build (or find) the folder."""
        ...


@pytest.fixture(autouse=True)
def _private_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test reads or writes the user's own settings."""
    monkeypatch.setenv("MTPLX_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def tiny(tmp_path: Path) -> TinyFactory:
    """A fresh folder at each call, free to be damaged."""
    from tests.support.tiny import build_tiny

    built: list[Path] = []

    def make(family: FamilyName, **options: Any) -> Path:
        built.append(build_tiny(tmp_path / f"tiny-{len(built)}", family, **options))
        return built[-1]

    return make


@pytest.fixture(scope="session")
def shared_tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyFactory:
    """One folder for each set of options in the whole run: read it, do not change it."""
    from tests.support.tiny import build_tiny

    built: dict[str, Path] = {}

    def make(family: FamilyName, **options: Any) -> Path:
        key = f"{family} {sorted(options.items())!r}"
        if key not in built:
            built[key] = build_tiny(tmp_path_factory.mktemp("shared") / "tiny", family, **options)
        return built[key]

    return make
