"""Settings that change while the server runs: all of them or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.service import Service
from mtplx.runtime.server.settings import KEYS
from tests.support.scripted_service import client_of, scripted_model, scripted_service
from tests.support.stream_routes import stream_routes

PATH = "/v1/mtplx/settings"


@pytest.fixture
def service() -> Iterator[Service]:
    with scripted_service() as found:
        yield found


@pytest.fixture
def client(service: Service) -> TestClient:
    return client_of(build_app(service, stream_routes()))


def test_the_values_in_use_are_shown(client: TestClient) -> None:
    shown = client.get(PATH).json()["settings"]
    assert tuple(shown) == KEYS
    assert (shown["depth"], shown["max_tokens"], shown["deadline_s"]) == ("auto", 200, None)


def test_changes_hold_for_the_requests_that_follow(service: Service, client: TestClient) -> None:
    changes = {
        "depth": 2,
        "acceptance": "block",
        "temperature": 0,
        "max_tokens": 3,
        "deadline_s": 9,
    }
    answer = client.post(PATH, json=changes)
    assert answer.status_code == 200
    assert {key: answer.json()["settings"][key] for key in changes} == changes
    assert client.get(PATH).json() == answer.json()
    client.post("/stream", json={})
    job = service.owner.backend.jobs[0]  # type: ignore[attr-defined]  # a scripted one
    assert (job.options.depth, job.options.max_tokens, job.deadline_s) == (2, 3, 9)


def test_null_gives_a_value_back_to_the_model(client: TestClient) -> None:
    client.post(PATH, json={"temperature": 0.5, "deadline_s": 5})
    shown = client.post(PATH, json={"temperature": None, "deadline_s": None}).json()["settings"]
    assert (shown["temperature"], shown["deadline_s"]) == (None, None)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"depth": 9}, "depth"),
        ({"depth": "deep"}, "depth"),
        ({"depth": True}, "depth"),
        ({"depth": "3"}, "depth"),
        ({"acceptance": "magic"}, "acceptance"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 1e9}, "temperature"),
        ({"temperature": "0.5"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"repetition_penalty": 1e-9}, "repetition_penalty"),
        ({"speed": 11}, "speed"),
        ({"port": 80}, "port"),
        ({"scheduler_mode": "hyper"}, "scheduler_mode"),
    ],
)
def test_one_wrong_value_refuses_them_all(
    client: TestClient, wrong: dict[str, Any], key: str
) -> None:
    before = client.get(PATH).json()
    answer = client.post(PATH, json={"min_p": 0.1, "top_k": 7, **wrong})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, key)
    assert key in error["message"]
    assert client.get(PATH).json() == before


def test_a_depth_needs_a_head() -> None:
    with scripted_service(model=scripted_model(has_head=False)) as service:
        client = client_of(build_app(service))
        refused = client.post(PATH, json={"depth": 2})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "head_missing")
        assert client.post(PATH, json={"depth": 0}).status_code == 200


@pytest.fixture(scope="module")
def idle() -> Iterator[Service]:
    with scripted_service() as found:
        yield found


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 300), st.floats(), st.text(max_size=5), st.just([])
)


@settings(max_examples=40)
@given(changes=st.dictionaries(st.sampled_from([*KEYS, "port", "x"]), VALUES, max_size=4))
def test_whatever_is_sent_is_taken_whole_or_refused_by_name(
    idle: Service, changes: dict[str, Any]
) -> None:
    client = client_of(build_app(idle))
    before = client.get(PATH).json()["settings"]
    content = json.dumps(changes)
    answer = client.post(PATH, content=content, headers={"content-type": "application/json"})
    after = client.get(PATH).json()["settings"]
    if answer.status_code == 200:
        assert after == {**before, **changes}
    else:
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] in {*changes, "body"}
        assert after == before
