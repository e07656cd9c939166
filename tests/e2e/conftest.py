"""Fixtures of the tests that run whole commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtplx.runtime.server.app import build_app
from tests.support.checkpoints import require_checkpoint
from tests.support.hub_server import HubServer, running_hub, use_hub
from tests.support.real_service import real_service
from tests.support.scripted_service import live_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtplx.runtime.server.service import Service


@pytest.fixture
def hub(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HubServer]:
    """A local hub that `huggingface_hub` talks to, with an empty cache and without a login."""
    from huggingface_hub import close_session

    with running_hub() as server:
        use_hub(server, tmp_path_factory.mktemp("hf-home"), monkeypatch)
        yield server
        close_session()


@pytest.fixture(scope="session")
def trained_service() -> Iterator[Service]:
    """The trained Qwen3.5 behind its owner."""
    with real_service(require_checkpoint("qwen3_5")) as service:
        yield service


@pytest.fixture(scope="session")
def trained_url(trained_service: Service) -> Iterator[str]:
    """A server of the trained Qwen3.5."""
    with live_server(build_app(trained_service)) as url:
        yield url
