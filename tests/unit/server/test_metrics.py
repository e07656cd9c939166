"""`/metrics` as Prometheus reads it, and `/v1/mtplx/stats`."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from mtplx.contracts.errors import NumericError
from mtplx.runtime.server.app import build_app
from tests.support.scripted_owner import Burst
from tests.support.scripted_service import client_of, scripted_service
from tests.support.stream_routes import stream_routes

DOCS = Path(__file__).parents[3] / "docs" / "server.md"


def scrape(client: TestClient) -> dict[str, float]:
    """Every sample by its name and labels."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families: list[Metric] = list(text_string_to_metric_families(answer.text))
    assert len({family.name for family in families}) == len(families)
    assert all(family.documentation for family in families)
    found = {}
    for family in families:
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_what_was_done_is_counted() -> None:
    scripts: list[list[Burst]] = [["abcd", "ef"], [NumericError("nan")]]
    answers = iter(scripts)
    with scripted_service(lambda _job: next(answers)) as service:
        client = client_of(build_app(service, stream_routes()))
        before = scrape(client)
        for _ in scripts:
            client.post("/stream", json={"prompt": [1, 2, 3, 4, 5]})
        client.get("/some/where")
        after = scrape(client)
    assert after["mtplx_finished_requests_total{reason=stop}"] == 1
    assert after["mtplx_failed_requests_total{reason=numeric}"] == 1
    assert after["mtplx_prompt_tokens_total"] == 5
    assert after["mtplx_completion_tokens_total"] == 7
    assert after["mtplx_drafted_tokens_total{depth=1}"] == 2
    assert after["mtplx_drafted_tokens_total{depth=3}"] == 1
    assert after["mtplx_accepted_tokens_total{depth=3}"] == 1
    assert after["mtplx_time_to_first_token_seconds_count"] == 1
    assert after["mtplx_time_between_tokens_seconds_count"] == 2
    assert after["mtplx_active_requests"] == after["mtplx_queued_requests"] == 0
    assert after["mtplx_http_requests_total{path=/stream,status=200}"] == 1
    assert after["mtplx_http_requests_total{path=/stream,status=500}"] == 1
    assert after["mtplx_http_requests_total{path=other,status=404}"] == 1
    assert before["mtplx_time_to_first_token_seconds_count"] == 0


def test_memory_and_prefixes_are_told() -> None:
    with scripted_service() as service:
        found = scrape(client_of(build_app(service)))
    assert found["mtplx_memory_active_bytes"] == 5
    assert found["mtplx_prefix_cache_hits_total"] == 2
    assert found["mtplx_prefix_cache_misses_total{reason=new_session}"] == 3
    assert found["mtplx_prefix_cache_bytes"] == 8


def test_strange_paths_make_no_new_series() -> None:
    with scripted_service() as service:
        client = client_of(build_app(service))
        for number in range(10):
            client.get(f"/x{number}")
            client.post(f"/v1/mtplx/cancel/{number}")
        found = scrape(client)
    series = [name for name in found if name.startswith("mtplx_http_requests_total")]
    assert sorted(series) == [
        "mtplx_http_requests_total{path=/v1/mtplx/cancel/{request_id},status=404}",
        "mtplx_http_requests_total{path=other,status=404}",
    ]


def test_two_servers_of_one_process_count_apart() -> None:
    with scripted_service() as one, scripted_service() as other:
        client_of(build_app(one, stream_routes())).post("/stream", json={})
        found = scrape(client_of(build_app(other)))
    assert found["mtplx_time_to_first_token_seconds_count"] == 0


def test_statistics_are_there_as_json() -> None:
    with scripted_service() as service:
        client = client_of(build_app(service, stream_routes()))
        client.post("/stream", json={})
        stats = client.get("/v1/mtplx/stats").json()
    assert stats["scheduler_mode"] == "serial"
    assert stats["scheduler_policy"]
    assert stats["requests_finished"] == {"stop": 1}
    assert stats["completion_tokens"] == 6
    assert stats["acceptance_by_depth"]
    assert stats["memory"]["active_bytes"] == 5
    assert stats["model"] == "scripted"


def test_the_documentation_lists_every_metric() -> None:
    with scripted_service() as service:
        client = client_of(build_app(service, stream_routes()))
        client.post("/stream", json={})
        families = text_string_to_metric_families(client.get("/metrics").text)
        names = {family.name + "_total" * (family.type == "counter") for family in families}
    documented = set(re.findall(r"`(mtplx_\w+)`", DOCS.read_text(encoding="utf-8")))
    told_by_models_alone = {"mtplx_memory_cache_bytes_per_token"}
    assert documented - told_by_models_alone == {n for n in names if not n.endswith("_created")}
