"""Health: what is told of a server that loads, serves, hangs and stops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from starlette.testclient import TestClient

from mtplx.runtime.scheduler.lanes import make_lane
from mtplx.runtime.scheduler.modes import SchedulerMode
from mtplx.runtime.scheduler.owner import Owner
from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.listening import LateApp
from tests.support.scripted_owner import ScriptedBackend, scripted_owner
from tests.support.scripted_service import client_of, scripted_model, scripted_service
from tests.support.stream_routes import stream_routes


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.005)


def test_a_server_that_serves_is_ready_and_says_how() -> None:
    model = scripted_model(warnings=("the head is untested",))
    tuning = {"status": "used", "depth": 2}
    config = ServerConfig(tuning=tuning, version="1.2.3")
    with scripted_service(model=model, config=config, depth=3) as service:
        client = client_of(build_app(service))
        answers = [client.get(path) for path in ("/health/ready", "/health")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    told = answers[0].json()
    assert told["status"] == "ready"
    assert told["scheduler_mode"] == "serial"
    assert "one request at a time" in told["scheduler_policy"]
    assert (told["model"], told["tier"], told["depth"]) == ("scripted", "verified", 3)
    assert told["tuned"] == tuning
    assert told["warnings"] == ["the head is untested"]
    assert told["version"] == "1.2.3"


def test_a_server_whose_model_is_being_loaded_lives_and_is_not_ready() -> None:
    may_load = threading.Event()

    def load() -> ScriptedBackend:
        may_load.wait(5)
        return ScriptedBackend(lambda _job: ["x"])

    owner = Owner(load, make_lane(SchedulerMode.SERIAL, 1))
    owner.start()
    with scripted_service(owner=owner) as service:
        client = client_of(build_app(service, stream_routes()))
        loading = client.get("/health/ready")
        assert (loading.status_code, loading.json()["reason"]) == (503, "the model is being loaded")
        assert client.get("/health/live").status_code == 200
        refused = client.post("/stream", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
        may_load.set()
        owner.wait_loaded()
        assert client.get("/health/ready").status_code == 200


def test_before_there_is_an_application_nothing_is_ready() -> None:
    late = LateApp()
    client = TestClient(late)
    assert client.get("/health/live").json() == {"status": "live"}
    assert client.post("/v1/chat/completions", json={}).status_code == 503
    with scripted_service() as service:
        late.app = build_app(service)
        assert client_of(late).get("/health/ready").status_code == 200  # type: ignore[arg-type]  # an ASGI app


@pytest.fixture
def stuck() -> Iterator[tuple[TestClient, Owner, threading.Event]]:
    """A server with a watchdog of 50 ms, in the middle of a step that never ends by itself."""
    release = threading.Event()
    owner = scripted_owner(
        ScriptedBackend(lambda _job: ["x", lambda: release.wait(10)]), watchdog_s=0.05
    )
    with scripted_service(owner=owner) as service:
        client = client_of(build_app(service, stream_routes()))
        asking = threading.Thread(target=client.post, args=("/stream",), kwargs={"json": {}})
        asking.start()
        wait_until(lambda: owner.health().active == 1)
        yield client, owner, release
        release.set()
        asking.join(5)


def test_a_step_that_does_not_end_makes_the_server_not_ready(
    stuck: tuple[TestClient, Owner, threading.Event],
) -> None:
    client, _, release = stuck
    wait_until(lambda: client.get("/health/ready").status_code == 503)
    told = client.get("/health").json()
    assert "no step has ended" in told["reason"]
    assert told["active_requests"] == 1
    assert client.get("/health/live").status_code == 200
    release.set()
    wait_until(lambda: client.get("/health/ready").status_code == 200)


def test_a_server_that_stops_is_not_ready(
    stuck: tuple[TestClient, Owner, threading.Event],
) -> None:
    client, owner, _ = stuck
    assert owner.stop(0.0) is False
    told = client.get("/health/ready")
    assert (told.status_code, told.json()["reason"]) == (503, "the server is stopping")
    assert client.post("/stream", json={}).status_code == 503


def test_a_full_queue_is_told_with_the_time_to_wait() -> None:
    release = threading.Event()
    owner = scripted_owner(lambda _job: [lambda: release.wait(5)], mode=SchedulerMode.HYPER)
    with scripted_service(owner=owner) as service:
        client = client_of(build_app(service, stream_routes()))
        asking = threading.Thread(target=client.post, args=("/stream",), kwargs={"json": {}})
        asking.start()
        wait_until(lambda: owner.health().active == 1)
        refused = client.post("/stream", json={})
        release.set()
        asking.join(5)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
    assert int(refused.headers["retry-after"]) >= 1


def test_a_request_can_be_cancelled_by_its_id_and_only_once() -> None:
    owner = scripted_owner(lambda _job: ["x", *[0.005] * 1000])
    with scripted_service(owner=owner) as service:
        app = build_app(service, stream_routes())
        client = client_of(app)
        found: list[str] = []

        def ask() -> None:
            found.append(client.post("/stream", json={}).text)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: owner.health().active == 1)
        backend = owner.backend
        assert isinstance(backend, ScriptedBackend)
        request_id = backend.jobs[0].id
        done = client.post(f"/v1/mtplx/cancel/{request_id}")
        assert (done.status_code, done.json()) == (200, {"id": request_id, "cancelled": True})
        asking.join(5)
        again = client.post(f"/v1/mtplx/cancel/{request_id}")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "not_found")
    assert '"code":"cancelled"' in found[0]
    assert "admin" in found[0]


def test_a_handler_is_not_held_up_by_the_owner() -> None:
    async def main() -> float:
        began = time.monotonic()
        await asyncio.gather(*[asyncio.to_thread(client.get, "/v1/mtplx/stats") for _ in range(8)])
        return time.monotonic() - began

    owner = scripted_owner(lambda _job: [0.3])
    with scripted_service(owner=owner) as service:
        client = client_of(build_app(service, stream_routes()))
        asking = threading.Thread(target=client.post, args=("/stream",), kwargs={"json": {}})
        asking.start()
        wait_until(lambda: owner.health().active == 1)
        assert asyncio.run(main()) < 0.25
        asking.join(5)
