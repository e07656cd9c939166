"""The official client in front of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from anthropic import Anthropic


@pytest.fixture(scope="package")
def client(url: str) -> Iterator[Anthropic]:
    with Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner
