"""Questions, answers and errors survive the way between processes."""

from __future__ import annotations

import io
import json
import sys

import pytest

from mtplx.contracts.errors import (
    InternalError,
    InvalidRequestError,
    MTPLXError,
    PromptTooLongError,
    ShardMissingError,
    UnsupportedModelError,
)
from mtplx.runtime.bench.protocol import (
    answer_question,
    parse_question,
    raise_told,
    serve,
    tell_error,
    to_question,
)
from mtplx.runtime.bench.tasks import (
    CostsTask,
    DecodeTask,
    MemoryTask,
    PrefillTask,
    Room,
    RoomTask,
    Task,
)

TASKS: list[Task] = [
    DecodeTask([1, 2], 3, None, temperature=0.5, seed=2**63),
    PrefillTask([1], 4, use_head=True),
    MemoryTask([1, 2, 3], 4, 5, 6),
    CostsTask([7], 8, 2, 512),
    RoomTask(),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_task_is_the_same_after_its_way_through_json(task: Task) -> None:
    assert parse_question(json.loads(json.dumps(to_question(task)))) == task


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(InternalError, match="'dance'"):
        parse_question({"task": "dance"})


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedModelError("no", hint="do"),
        PromptTooLongError("long"),
        InvalidRequestError("bad", key="depth", hint="good"),
        ShardMissingError("gone", missing=("a",)),
        MTPLXError("base"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_what_it_was(error: MTPLXError) -> None:
    def fail(_task: Task) -> Room:
        raise error

    answer = json.loads(json.dumps(answer_question(to_question(RoomTask()), fail)))
    with pytest.raises(MTPLXError) as caught:
        raise_told(answer)
    assert type(caught.value) is type(error)
    assert (caught.value.message, caught.value.hint) == (error.message, error.hint)
    assert getattr(caught.value, "key", None) == getattr(error, "key", None)


class NamelessError(PromptTooLongError):
    """Has the code of its base, and other arguments."""

    def __init__(self) -> None:
        super().__init__("nameless")


def test_a_class_without_a_code_of_its_own_arrives_as_its_base() -> None:
    with pytest.raises(PromptTooLongError, match="nameless") as caught:
        raise_told(tell_error(NamelessError()))
    assert type(caught.value) is PromptTooLongError


def test_an_answer_without_error_raises_nothing() -> None:
    raise_told({"tokens": []})
    with pytest.raises(InternalError):
        raise_told(tell_error(InternalError("x")))


def test_each_question_has_its_answer_on_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps(to_question(RoomTask())), json.dumps({"task": "dance"})]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
    serve({"chip": "x"}, lambda _task: Room(1.5, 3))
    about, room, refused = map(json.loads, capsys.readouterr().out.splitlines())
    assert about == {"chip": "x"}
    assert room == {"bytes_per_token": 1.5, "free_bytes": 3}
    assert refused["error"]["code"] == "internal"
