"""Fixtures of the tests that run whole commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.hub_server import HubServer, running_hub, use_hub

if TYPE_CHECKING:
    from collections.abc import Iterator


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
