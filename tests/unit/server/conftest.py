"""A server of a model in Qwen's shape that answers with a script."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.served import ServedModel
from tests.support.scripted_service import client_of, live_server, scripted_service
from tests.unit.server.chat_models import QWEN3, make_model
from tests.unit.server.playing import Playing

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    from mtplx.runtime.server.service import Service

WORDS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    folder = tmp_path_factory.mktemp("served") / "qwen3"
    plain = make_model(folder, QWEN3, words=WORDS)
    return dataclasses.replace(plain, has_head=True, max_depth=3, context_length=2000)


@pytest.fixture(scope="package")
def player() -> Playing:
    return Playing()


@pytest.fixture
def playing(player: Playing) -> Playing:
    """What the model answers, and the jobs that it was given."""
    player.bursts = ["hello"]
    player.jobs.clear()
    return player


@pytest.fixture(scope="package")
def service(model: ServedModel, player: Playing) -> Iterator[Service]:
    with scripted_service(player, model=model) as service:
        yield service


@pytest.fixture(scope="package")
def app(service: Service) -> Starlette:
    return build_app(service)


@pytest.fixture(scope="package")
def http(app: Starlette) -> Iterator[TestClient]:
    """The app without a network."""
    with client_of(app) as client:
        yield client


@pytest.fixture(scope="package")
def url(app: Starlette) -> Iterator[str]:
    with live_server(app) as url:
        yield url
