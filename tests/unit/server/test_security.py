"""Hosts, origins, keys: who is answered and who is not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from starlette.testclient import TestClient

from mtplx.contracts.errors import UsageError
from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.keys import ApiKeys
from tests.support.scripted_service import client_of, scripted_service
from tests.support.stream_routes import stream_routes

KEY = "correct-horse-battery"
KEYS = ApiKeys.of(me=KEY, you="staple-staple-staple")


@contextmanager
def client(**config: object) -> Iterator[TestClient]:
    with scripted_service(config=ServerConfig(**config)) as service:  # type: ignore[arg-type]  # names of fields
        yield client_of(build_app(service, stream_routes()))


@pytest.fixture(scope="module")
def local() -> Iterator[TestClient]:
    with client() as found:
        yield found


@pytest.fixture
def guarded() -> Iterator[TestClient]:
    with client(keys=KEYS, max_failures=3) as found:
        yield found


def code(answer: httpx2.Response) -> tuple[int, str | None]:
    body = answer.json()
    return answer.status_code, body["error"]["code"] if "error" in body else None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LocalHost.:80"])
def test_the_server_answers_to_its_own_names(local: TestClient, host: str) -> None:
    assert local.get("/health/live", headers={"host": host}).status_code == 200


STRANGE_HOSTS = [
    *("evil.example", "evil.example:8000", "localhost.evil.example", "192.168.1.1", "a@localhost"),
    *(
        "localhost:",
        "localhost:99999999",
        "[::1",
        "::1",
        "localhost/..",
        "local,host",
        "local host",
        "",
    ),
]


@pytest.mark.parametrize("host", STRANGE_HOSTS)
def test_a_page_whose_name_points_here_is_refused(local: TestClient, host: str) -> None:
    assert code(local.get("/health/live", headers={"host": host})) == (403, "forbidden")


def test_two_hosts_are_none(local: TestClient) -> None:
    headers = [("host", "localhost"), ("host", "localhost")]
    assert code(local.get("/health/live", headers=headers)) == (403, "forbidden")


def test_more_names_can_be_allowed() -> None:
    with client(allowed_hosts=("Box.LAN",)) as found:
        assert found.get("/health/live", headers={"host": "box.lan:80"}).status_code == 200
        assert found.get("/health/live", headers={"host": "evil.lan"}).status_code == 403


def test_a_server_open_to_the_network_answers_to_addresses_and_no_names() -> None:
    with client(host="0.0.0.0", keys=KEYS) as found:
        for host, status in (("192.168.1.20:8000", 200), ("[fe80::1]", 200), ("evil.lan", 403)):
            assert found.get("/health/live", headers={"host": host}).status_code == status


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000", "x"])
def test_pages_of_other_origins_are_refused(local: TestClient, origin: str) -> None:
    headers = {"origin": origin, "host": "localhost:8000"}
    answer = local.post("/echo", json={}, headers=headers)
    assert code(answer) == (403, "forbidden")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = local.options("/echo", headers={**headers, "access-control-request-method": "POST"})
    assert preflight.status_code == 403


def test_pages_of_the_server_itself_are_not(local: TestClient) -> None:
    headers = {"origin": "http://localhost:8000", "host": "localhost:8000"}
    answer = local.post("/echo", json={}, headers=headers)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_an_origin_can_be_let_in() -> None:
    origin = "http://localhost:3000"
    with client(cors_origins=(origin,), keys=KEYS) as found:
        preflight = found.options(
            "/echo",
            headers={
                "origin": origin,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization,content-type,x-stainless-os",
            },
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == origin
        assert "x-stainless-os" in preflight.headers["access-control-allow-headers"]
        headers = {"origin": origin, "authorization": f"Bearer {KEY}"}
        answer = found.post("/echo", json={}, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == origin
        # What went wrong must be readable for the page too.
        refused = found.post("/echo", json={}, headers={"origin": origin})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == origin
        other = found.post("/echo", json={}, headers={**headers, "origin": "http://evil.example"})
        assert other.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer  {KEY} "},
        {"x-api-key": KEY},
        {"x-api-key": KEY, "authorization": "Bearer something-else"},
        {"x-api-key": "staple-staple-staple"},
    ],
)
def test_a_key_opens_the_server(guarded: TestClient, headers: dict[str, str]) -> None:
    assert guarded.post("/echo", json={"a": 1}, headers=headers).json() == {"a": 1}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": f"Basic {KEY}"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {KEY}x"},
        {"x-api-key": KEY[:-1]},
        {"x-api-key": "é" * 10},
        {"cookie": f"key={KEY}"},
    ],
)
def test_without_a_known_key_it_stays_shut(guarded: TestClient, headers: dict[str, str]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    answer = guarded.post("/echo", json={}, headers=raw)
    assert code(answer) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert KEY not in answer.text


def test_a_key_in_the_query_is_none(guarded: TestClient) -> None:
    assert guarded.get(f"/metrics?api_key={KEY}").status_code == 401


def test_paths_that_are_not_there_are_not_told_without_a_key(guarded: TestClient) -> None:
    assert guarded.get("/nothing").status_code == 401
    assert guarded.get("/nothing", headers={"x-api-key": KEY}).status_code == 404


def test_guessing_is_throttled_and_a_right_key_is_not_looked_at_then(guarded: TestClient) -> None:
    for _ in range(3):
        assert guarded.get("/metrics", headers={"x-api-key": "wrong"}).status_code == 401
    for key in ("wrong", KEY):
        answer = guarded.get("/metrics", headers={"x-api-key": key})
        assert code(answer) == (429, "too_many_failures")
        assert 0 < int(answer.headers["retry-after"]) <= 60
    # A probe without a key is no guess.
    assert guarded.get("/health/live").status_code == 200


def test_health_without_a_key_tells_no_more_than_the_state(guarded: TestClient) -> None:
    assert guarded.get("/health/ready").json() == {"status": "ready", "reason": None}
    told = guarded.get("/health/ready", headers={"x-api-key": KEY}).json()
    assert told["model"] == "scripted"
    assert guarded.get("/health", headers={"x-api-key": "wrong"}).status_code == 401


def test_the_number_of_headers_is_bounded(local: TestClient) -> None:
    headers = {f"x-{number}": "1" for number in range(101)}
    assert code(local.get("/health/live", headers=headers)) == (431, "headers_too_large")


def test_neither_prompts_nor_keys_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mtplx")
    headers = {"authorization": f"Bearer {KEY}"}
    with client(keys=KEYS) as found:
        found.post("/echo?q=in-query", json={"a": "in-body"}, headers=headers)
        found.get("/a%0ab", headers=headers)
    text = caplog.text
    assert "POST /echo 200" in text
    assert "key=me" in text
    assert "/a\\x0ab" in text
    assert not any(secret in text for secret in ("in-body", "in-query", KEY))


def test_prompts_are_logged_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mtplx")
    with client(log_prompts=True) as found:
        answer = found.post(
            "/echo",
            content='{"a": "é\n"}'.replace("\n", "\\n"),
            headers={"content-type": "application/json"},
        )
    assert answer.status_code == 200
    assert '{"a": "\\xc3\\xa9\\\\n"}' in caplog.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.20", "box.lan"])
def test_an_open_address_without_a_key_is_refused_with_the_command_that_mends_it(host: str) -> None:
    with pytest.raises(UsageError, match="no API key is set") as caught:
        ServerConfig(host=host).check()
    assert f"mtplx serve --host {host} --api-key-file" in caught.value.hint
    ServerConfig(host=host, keys=KEYS).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_an_address_of_this_machine_needs_no_key(host: str) -> None:
    ServerConfig(host=host).check()


def test_every_name_may_only_be_allowed_behind_a_key() -> None:
    with pytest.raises(UsageError, match="any web page"):
        ServerConfig(allowed_hosts=("*",)).check()
    with client(allowed_hosts=("*",), keys=KEYS) as found:
        assert found.get("/health/live", headers={"host": "evil.example"}).status_code == 200
