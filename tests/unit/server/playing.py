"""A script whose answers tests set, and texts that models write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mtplx.runtime.scheduler.job import Job
from tests.support.scripted_owner import Burst

NAME = "qwen3"

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Pàris ☂"}}\n</tool_call>'
SECOND_CALL = (
    '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, {"c": "}"}]}}\n</tool_call>'
)

ANSWERS = [
    "Plain é 漢 👩‍💻 text.",
    "I thought `</think>` twice.</think>\n\nThe answer.",
    "never ends",
    f"so</think>Let me see. {CALL}",
    f"so</think>{CALL}\n{SECOND_CALL}",
    f"so</think>{CALL} and then {SECOND_CALL} done",
    'so</think><tool_call>\n{"name": "get_weather", "argum',
    "so</think>The literal token <tool_call> opens a call.",
    "so</think>",
    "",
]


@dataclass
class Playing:
    """A script whose bursts tests set, and that remembers the jobs it was given."""

    bursts: Iterable[Burst] = field(default_factory=lambda: ["hello"])
    jobs: list[Job] = field(default_factory=list)

    def __call__(self, job: Job) -> Iterable[Burst]:
        """The bursts."""
        self.jobs.append(job)
        return self.bursts
