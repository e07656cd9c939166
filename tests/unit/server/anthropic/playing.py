"""Scripts and requests of these tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mtplx.runtime.scheduler.job import Job
from tests.support.scripted_owner import Burst

NAME = "qwen3"

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
ADD = {
    "name": "add",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Pàris ☂"}}\n</tool_call>'
SECOND_CALL = (
    '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, {"c": "}"}]}}\n</tool_call>'
)


@dataclass
class Playing:
    """A script whose bursts tests set, and that remembers the jobs it was given."""

    bursts: Iterable[Burst] = field(default_factory=lambda: ["hello"])
    jobs: list[Job] = field(default_factory=list)

    def __call__(self, job: Job) -> Iterable[Burst]:
        """The bursts."""
        self.jobs.append(job)
        return self.bursts


def asking(text: str = "hi", **keys: Any) -> dict[str, Any]:
    """A request of one question, answered without thinking unless `keys` say otherwise."""
    plain: dict[str, Any] = {
        "model": NAME,
        "max_tokens": 300,
        "messages": [{"role": "user", "content": text}],
        "thinking": {"type": "disabled"},
    }
    return {key: value for key, value in (plain | keys).items() if value is not None}
