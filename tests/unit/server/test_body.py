"""Bodies of requests: limits, and what is no usable JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.server.app import build_app
from mtplx.runtime.server.body import parse_body
from mtplx.runtime.server.config import ServerConfig
from mtplx.runtime.server.json_scan import JsonScan
from tests.support.scripted_service import client_of, scripted_service
from tests.support.stream_routes import stream_routes

LIMITS = ServerConfig(max_body_bytes=2000, max_json_depth=5, max_json_values=50)

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with scripted_service(config=LIMITS) as service:
        yield client_of(build_app(service, stream_routes()))


def refused(client: TestClient, content: bytes, headers: dict[str, str] = JSON) -> tuple[int, str]:
    answer = client.post("/echo", content=content, headers=headers)
    error = answer.json()["error"]
    return answer.status_code, error["code"]


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'],
)
def test_json_is_taken(client: TestClient, kind: str) -> None:
    body = {"a": [1, 2.5, None, True, "é\u2028 \U0001f600"], "b": {"c": {"d": {}}}}
    answer = client.post("/echo", content=json.dumps(body), headers={"content-type": kind})
    assert (answer.status_code, answer.json()) == (200, body)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {**JSON, "content-encoding": "gzip"},
    ],
)
def test_other_media_types_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert refused(client, b"{}", headers) == (415, "unsupported_media_type")


def test_a_body_that_says_it_is_too_large_is_not_read(client: TestClient) -> None:
    headers = {**JSON, "content-length": "999999999"}
    assert refused(client, b"{}", headers) == (413, "body_too_large")


def test_a_body_that_turns_out_too_large_is_cut_off(client: TestClient) -> None:
    chunks = (b" " * 500 for _ in range(5))
    answer = client.post("/echo", content=chunks, headers=JSON)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


def test_a_body_is_measured_while_it_comes(client: TestClient) -> None:
    assert refused(client, b'{"a":' + b"[" * 5) == (400, "invalid_request")
    assert refused(client, b'{"a":[' + b"1," * 50) == (400, "invalid_request")
    assert client.post("/echo", json={"a": [[[[]]]]}).status_code == 200
    assert client.post("/echo", json={"a": [1] * 48}).status_code == 200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b'"a"',
        b"1",
        b"{",
        b'{"a":1,}',
        b"{'a':1}",
        b'{"a":1}{"b":2}',
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 1500 + b"}]",
        b'{"a":"\\ud800"}',
        b'{"a":"\\ude00 \\ud83d"}',
        b'{"\\ud800":1}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        b'{"a":"\x00"}',
        b"\x00" * 100,
        b'{"a": 0x10}',
    ],
)
def test_what_is_no_usable_json_object_is_refused(client: TestClient, content: bytes) -> None:
    assert refused(client, content) == (400, "invalid_request")


@settings(max_examples=60)
@given(content=st.binary(max_size=40) | st.text('{}[]",:0e-\\u tn', max_size=20).map(str.encode))
def test_no_bytes_are_the_fault_of_the_server(client: TestClient, content: bytes) -> None:
    assert client.post("/echo", content=content, headers=JSON).status_code in (200, 400)


def test_the_number_of_digits_is_bounded() -> None:
    with pytest.raises(InvalidRequestError, match="digits"):
        parse_body(b'{"seed":' + b"9" * 5000 + b"}")


def test_whole_pairs_of_surrogates_are_text() -> None:
    assert parse_body(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def shape(value: Any) -> tuple[int, int]:
    """Depth, and the number of containers and commas, counted on the value."""
    if not isinstance(value, list | dict):
        return 0, 0
    children = list(value.values()) if isinstance(value, dict) else value
    shapes = [shape(child) for child in children]
    depth = 1 + max((d for d, _ in shapes), default=0)
    return depth, 1 + max(len(children) - 1, 0) + sum(n for _, n in shapes)


@given(value=JSON_VALUES, ascii_only=st.booleans(), data=st.data())
def test_a_scan_counts_alike_however_the_bytes_are_cut(
    value: Any, ascii_only: bool, data: st.DataObject
) -> None:
    content = json.dumps(value, ensure_ascii=ascii_only).encode()
    depth, count = shape(value)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]

    def scan(max_depth: int, max_values: int) -> None:
        found = JsonScan(max_depth=max_depth, max_values=max_values)
        for piece in pieces:
            found.feed(piece)

    scan(depth, count)
    if depth:
        with pytest.raises(InvalidRequestError, match="nested"):
            scan(depth - 1, count)
        with pytest.raises(InvalidRequestError, match="values"):
            scan(depth, count - 1)


def test_a_scan_of_many_escapes_is_quick_and_small() -> None:
    scan = JsonScan(max_depth=1, max_values=10)
    scan.feed(b'{"a":"' + b'\\n\\"' * 1_000_000)
    scan.feed(b'",')
    with pytest.raises(InvalidRequestError, match="nested"):
        scan.feed(b"[")
