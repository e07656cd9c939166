"""The server against its own OpenAPI document: whatever is sent, nothing fails and every answer has its shape."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route

from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.openapi.document import document
from tests.support.scripted_owner import in_bursts
from tests.support.scripted_service import client_of, scripted_service
from tests.unit.server.chat_models import QWEN3, make_model
from tests.unit.server.playing import CALL, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

PATHS = document("1")["paths"]
# What these answer to must be known, and is made up.
UNKNOWABLE = ("/v1/mtplx/cancel/{request_id}", "/v1/models/{name}")
NEEDED = ("model", "messages", "prompt", "input", "max_tokens")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starlette]:
    """A server whose model thinks, calls a tool and speaks, and never needs long."""
    words = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    plain = make_model(tmp_path_factory.mktemp("schema") / "qwen3", QWEN3, words=words)
    model = dataclasses.replace(plain, has_head=True, max_depth=3, context_length=20_000)
    answer = in_bursts(f"hm</think>Let me see é 漢.{CALL}", 3)
    # The name that schemathesis calls applications by.
    config = ServerConfig(allowed_hosts=("testserver",))
    with scripted_service(lambda _job: answer, model=model, config=config) as service:
        yield build_app(service)


@pytest.fixture(scope="module")
def schema(app: Starlette) -> Any:
    """The document, read as a stranger would."""
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.mark.parametrize(
    ("path", "method"), [(path, method) for path in PATHS for method in PATHS[path]]
)
def test_every_answer_has_the_shape_that_the_document_says(
    schema: Any, path: str, method: str
) -> None:
    seen: list[int] = []
    operation = schema[path][method.upper()]

    @settings(
        max_examples=40 if method == "post" else 5,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), data=st.data())
    def check(case: Any, data: st.DataObject) -> None:
        if isinstance(case.body, dict) and "model" in case.body:
            case.body = asked_of_the_model(case.body, data)
        seen.append(case.call_and_validate(checks=CHECKS).status_code)

    check()
    # A path that refuses everything would show nothing.
    assert 200 in seen or path in UNKNOWABLE, sorted(set(seen))
    assert method == "get" or path in UNKNOWABLE or 400 in seen


def asked_of_the_model(body: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """A body with the served model's name, and with few of its optional keys: many at once are always refused."""
    needed = [key for key in NEEDED if key in body]
    others = sorted(body.keys() - set(needed))
    kept = data.draw(st.lists(st.sampled_from(others), max_size=3)) if others else []
    return {key: body[key] for key in (*needed, *kept)} | {"model": NAME}


def test_every_path_is_in_the_document(app: Starlette) -> None:
    found = {
        (route.path.replace(":path}", "}"), method.lower())
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert {(path, method) for path in PATHS for method in PATHS[path]} == found


def test_the_document_is_the_servers_own(app: Starlette) -> None:
    with client_of(app) as client:
        assert client.get("/openapi.json").json()["info"]["title"] == "mtplx"
