"""Questions and answers of a measuring process as lines of JSON, and its errors as errors again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from mtplx.contracts.errors import InternalError, MTPLXError
from mtplx.runtime.bench.tasks import (
    CostsTask,
    DecodeTask,
    MemoryTask,
    PrefillTask,
    RoomTask,
    Task,
)
from mtplx.runtime.tuning.job import write_line

_TASKS: Mapping[str, type[Task]] = {
    "decode": DecodeTask,
    "prefill": PrefillTask,
    "memory": MemoryTask,
    "costs": CostsTask,
    "room": RoomTask,
}
_NAMES = {kind: name for name, kind in _TASKS.items()}


def to_question(task: Task) -> dict[str, Any]:
    """The task as an object of JSON."""
    return {"task": _NAMES[type(task)], **asdict(task)}


def parse_question(question: Mapping[str, Any]) -> Task:
    """The task that `to_question` made the object of.

    Raises:
        InternalError: there is no such task.
    """
    fields = dict(question)
    name = fields.pop("task", None)
    if name not in _TASKS:
        raise InternalError(
            f"a measuring process was asked for {name!r}; known: {', '.join(_TASKS)}"
        )
    return _TASKS[name](**fields)


def serve(about: Mapping[str, Any], answer: Callable[[Task], Any]) -> None:
    """Write `about` to standard output, then the answer to each question of standard input until that ends."""
    write_line(sys.stdout, about)
    for line in sys.stdin:
        write_line(sys.stdout, answer_question(json.loads(line), answer))


def answer_question(question: Mapping[str, Any], answer: Callable[[Task], Any]) -> dict[str, Any]:
    """The answer's fields, or the error that was raised under the key `error`."""
    try:
        return asdict(answer(parse_question(question)))
    except MTPLXError as error:
        return tell_error(error)


def tell_error(error: MTPLXError) -> dict[str, Any]:
    """An error in place of an answer."""
    return {"error": error.to_json()}


def raise_told(answer: Mapping[str, Any]) -> None:
    """Raise the error that `answer` tells, as the class that it was."""
    told = answer.get("error")
    if told is None:
        return
    kinds: dict[str, type[MTPLXError]] = {}
    for kind in _kinds(MTPLXError):
        # A class without a code of its own has that of its base, which comes first.
        kinds.setdefault(kind.code, kind)
    own: dict[str, Any] = {"key": told["key"]} if "key" in told else {}
    raise kinds.get(told["code"], MTPLXError)(told["message"], hint=told["hint"], **own)


def _kinds(base: type[MTPLXError]) -> Iterator[type[MTPLXError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)
