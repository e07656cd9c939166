"""`mtplx bench serve`: the real server and its clients in processes of their own."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, get_args

import jsonschema
import pytest

from mtplx.contracts.errors import BackendError
from mtplx.main import execute
from mtplx.runtime.bench import report
from mtplx.runtime.bench.endpoint import clients_process
from mtplx.runtime.bench.endpoint.engine import PlaybackBackend, play
from mtplx.runtime.bench.endpoint.tasks import Api, LoadTask
from mtplx.runtime.decode.options import GenerationOptions
from mtplx.runtime.scheduler.job import Job
from tests.support.checkpoints import REPOSITORY
from tests.support.scripted import ScriptedTokenizer, byte_tokens
from tests.support.scripted_owner import in_bursts, scripted_owner
from tests.support.scripted_service import NAME, live_server, scripted_model, scripted_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtplx.runtime.decode.result import Event

DEMO = str(REPOSITORY / "examples" / "demo-model")
SHORT = ["--requests", "2", "--max-tokens", "30", "--repeats", "1", "--clients"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    from mtplx.runtime.server.app import build_app

    model = scripted_model()
    model.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    owner = scripted_owner(lambda _job: in_bursts("Ünder 漢 way" * 20, 1))
    with (
        scripted_service(owner=owner, model=model) as service,
        live_server(build_app(service)) as url,
    ):
        yield url


def load(url: str, api: Api, **changes: Any) -> LoadTask:
    keys = {"clients": 2, "requests": 2, "max_tokens": 25, "streams": True} | changes
    return LoadTask(url=url, model=NAME, api=api, **keys)


def test_a_report_says_how_fast_the_server_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", "serve", "--model", DEMO, *SHORT, "1,3", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    jsonschema.validate(found, report.shipped_schema())
    assert (found["kind"], found["tokenizer"], found["repeats"]) == ("serve", "demo-model", 1)
    assert [row["clients"] for row in found["rows"]] == [1, 3]
    for row in found["rows"]:
        assert row["total_tok_s"]["median"] > 0
        assert row["requests_s"]["median"] > 0
        assert 0 < row["first_byte_s"]["median"] < 5
        assert row["server_cpu_s_per_1000_tokens"] > 0


def test_a_folder_without_a_tokenizer_is_refused(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mimo"}')
    code = execute(["bench", "serve", "--model", str(tmp_path), *SHORT, "1"])
    assert code in (3, 4)
    assert "token" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--clients", "0"], ["--clients", "x"], ["--burst", "0"], ["--max-tokens", "1"]]
)
def test_wrong_values_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", "serve", *arguments]) == 2
    assert arguments[0][2:].replace("-", "_") in capsys.readouterr().err.replace("-", "_")


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("api", get_args(Api))
def test_clients_of_every_api_count_and_time_their_answers(
    url: str, api: Api, streams: bool
) -> None:
    done = asyncio.run(clients_process.run(load(url, api, streams=streams)))
    assert len(done.answers) == 4
    assert {one.tokens for one in done.answers} == {25}
    assert all(one.sent < one.first <= one.last for one in done.answers)
    assert len({one.id for one in done.answers}) == 4
    assert all(one.id.startswith("req_") for one in done.answers)


def test_an_answer_that_is_none_is_an_error(url: str) -> None:
    with pytest.raises(BackendError, match="404"):
        asyncio.run(clients_process.run(LoadTask(url, "other", "chat", 1, 1, 9, streams=True)))


@pytest.mark.parametrize("burst", [1, 2, 3, 50])
def test_the_engine_plays_its_answer_again_and_again(burst: int) -> None:
    tokens = byte_tokens("aé漢")
    engine = PlaybackBackend(play(ScriptedTokenizer(), tokens), burst)
    job = Job(id="j", prompt=[1, 2], options=GenerationOptions(max_tokens=14))
    read: list[tuple[int, int]] = []
    events: list[Event] = list(engine.run(job, lambda: False, lambda *done: read.append(done)))
    assert read == [(2, 2)]
    assert "".join(event.text for event in events) == "aé漢aé漢aé"[:7]
    assert [token for event in events for token in event.token_ids] == (tokens * 3)[:14]
    assert [event.finish_reason for event in events] == [None] * (len(events) - 1) + ["length"]
    assert all(len(event.token_ids) <= burst for event in events)
    assert list(engine.read_at) == ["j"]


def test_the_engine_stops_when_it_is_told_to() -> None:
    engine = PlaybackBackend(play(ScriptedTokenizer(), byte_tokens("abc")), 1)
    job = Job(id="j", prompt=[1], options=GenerationOptions(max_tokens=9))
    asked = iter([False, False, True])
    events = list(engine.run(job, lambda: next(asked), lambda *_: None))
    assert [event.text for event in events] == ["a", "b", ""]
    assert events[-1].finish_reason == "interrupted"
