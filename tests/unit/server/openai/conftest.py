"""The official client in front of the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI


@pytest.fixture(scope="package")
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streams(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
