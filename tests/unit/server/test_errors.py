"""Errors as the two APIs have them, and what nobody expected."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from mtplx.contracts import errors as contract_errors
from mtplx.contracts.errors import (
    CorruptModelError,
    InvalidRequestError,
    ModelNotFoundError,
    MTPLXError,
    NumericError,
    PromptTooLongError,
    ResourceError,
)
from mtplx.runtime.scheduler import errors as scheduler_errors
from mtplx.runtime.scheduler.errors import NotReadyError, QueueFullError, RequestCancelledError
from mtplx.runtime.scheduler.ticket import CancelReason
from mtplx.runtime.server import refusals
from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.errors import STATUS, error_object, error_response, status_of
from tests.support.scripted_owner import Burst, ScriptedBackend, scripted_owner
from tests.support.scripted_service import client_of, scripted_service
from tests.support.stream_routes import stream_routes

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"

BUSY = QueueFullError("busy", retry_after_s=7)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with scripted_service() as service:
        yield client_of(build_app(service, stream_routes()))


def every_code() -> set[str]:
    modules = (contract_errors, scheduler_errors, refusals)
    classes = [c for m in modules for _, c in inspect.getmembers(m, inspect.isclass)]
    return {c.code for c in classes if issubclass(c, MTPLXError)}


def test_the_table_names_errors_that_exist() -> None:
    assert set(STATUS) <= every_code()


@pytest.mark.parametrize(
    ("error", "status", "openai", "anthropic"),
    [
        (
            InvalidRequestError("x", key="top_p"),
            400,
            "invalid_request_error",
            "invalid_request_error",
        ),
        (PromptTooLongError("x"), 400, "invalid_request_error", "invalid_request_error"),
        (refusals.MissingKeyError("x"), 401, "authentication_error", "authentication_error"),
        (refusals.ForbiddenError("x"), 403, "permission_error", "permission_error"),
        (ModelNotFoundError("x"), 404, "invalid_request_error", "not_found_error"),
        (refusals.ReceiveTimeoutError("x"), 408, "invalid_request_error", "timeout_error"),
        (refusals.BodyTooLargeError("x"), 413, "invalid_request_error", "invalid_request_error"),
        (refusals.MediaTypeError("x"), 415, "invalid_request_error", "invalid_request_error"),
        (BUSY, 429, "rate_limit_error", "rate_limit_error"),
        (NumericError("x"), 500, "server_error", "api_error"),
        (CorruptModelError("x"), 500, "server_error", "api_error"),
        (NotReadyError("x"), 503, "server_error", "overloaded_error"),
        (ResourceError("x"), 507, "server_error", "api_error"),
    ],
)
def test_every_error_has_a_status_and_a_type_in_both_apis(
    error: MTPLXError, status: int, openai: str, anthropic: str
) -> None:
    assert status_of(error) == status
    assert error_object(error, CHAT)["error"]["type"] == openai
    assert error_object(error, MESSAGES)["error"]["type"] == anthropic
    assert error_object(error, f"{MESSAGES}/count_tokens")["type"] == "error"
    assert "type" not in error_object(error, "/v1/messages-of-another-kind")


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (CancelReason.DEADLINE, 408),
        (CancelReason.ADMIN, 409),
        (CancelReason.SHUTDOWN, 503),
    ],
)
def test_a_cancelled_request_says_by_whom(reason: CancelReason, status: int) -> None:
    assert status_of(RequestCancelledError("x", reason=reason)) == status


def test_an_error_object_names_the_key_and_what_to_do() -> None:
    error = InvalidRequestError("top_p is 2", key="top_p", hint="Send 0 to 1.")
    assert error_object(error, CHAT) == {
        "error": {
            "message": "top_p is 2. Send 0 to 1.",
            "type": "invalid_request_error",
            "param": "top_p",
            "code": "invalid_request",
        }
    }
    assert error_object(error, MESSAGES, "req_1") == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "top_p is 2. Send 0 to 1."},
        "request_id": "req_1",
    }


def test_a_busy_server_says_when_to_come_back() -> None:
    headers = error_response(BUSY, CHAT).headers
    assert headers["retry-after"] == "7"
    assert "x-should-retry" not in headers


def test_clients_are_told_not_to_repeat_what_was_cancelled_or_cannot_work() -> None:
    cancelled = RequestCancelledError("x", reason=CancelReason.ADMIN)
    for error in (cancelled, ResourceError("x"), NumericError("x")):
        assert error_response(error, CHAT).headers["x-should-retry"] == "false"


@pytest.mark.parametrize("path", ["/crash", "/v1/messages/crash"])
def test_a_bug_is_logged_and_not_shown(
    client: TestClient, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.get(path)
    assert answer.status_code == 500
    assert "1234" not in answer.text
    assert "Traceback" not in answer.text
    assert "the secret is 1234" in caplog.text
    assert answer.headers["x-request-id"] in caplog.text
    body = answer.json()
    assert (
        (body["type"] == "error") if "messages" in path else (body["error"]["code"] == "internal")
    )


def test_every_answer_has_an_id_of_its_own_that_clients_cannot_choose(client: TestClient) -> None:
    paths = ("/health/live", "/nothing", "/crash", "/")
    answers = [client.get(path, headers={"x-request-id": "mine"}) for path in paths]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(paths)
    assert all(found.startswith("req_") for found in ids)
    assert [answer.headers["request-id"] for answer in answers] == ids


def test_unknown_paths_and_methods_are_refused_in_json(client: TestClient) -> None:
    missing = client.get("/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    wrong = client.get("/echo")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert client.get("/v1/messages/nothing").json()["error"]["type"] == "not_found_error"


def test_what_the_model_refuses_has_a_status_though_a_stream_was_asked_for() -> None:
    backend = ScriptedBackend(lambda _job: ["x"], refusal=PromptTooLongError("too long"))
    with scripted_service(owner=scripted_owner(backend)) as service:
        answer = client_of(build_app(service, stream_routes())).post("/stream", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "prompt_too_long")


def test_what_fails_in_mid_answer_ends_the_stream_and_the_next_one_is_answered() -> None:
    answers: list[list[Burst]] = [["one ", NumericError("nan")], ["two"]]
    scripts = iter(answers)
    with scripted_service(lambda _job: next(scripts)) as service:
        client = client_of(build_app(service, stream_routes()))
        broken, whole = (client.post("/stream", json={}) for _ in range(2))
    assert broken.status_code == 200
    assert '"code":"numeric"' in broken.text.split("\n\n")[-2]
    assert "two" in whole.text
    assert whole.text.endswith("data: [DONE]\n\n")


def test_a_deadline_ends_an_answer_with_an_error() -> None:
    with scripted_service(lambda _job: ["x", *[0.02] * 100]) as service:
        answer = client_of(build_app(service, stream_routes())).post(
            "/stream", json={"deadline_s": 0.1}
        )
    assert '"code":"cancelled"' in answer.text.split("\n\n")[-2]
    assert "deadline" in answer.text
