"""Decode three prompts plainly and with the model's MTP head, and compare text and speed.

Usage: python examples/demo.py [MODEL_FOLDER]
"""

import statistics
import sys
from typing import Any, NamedTuple

import mtplx
from mtplx.contracts.errors import ExactnessError
from mtplx.demo import demo_model_path

REPEATS = 3
DEPTH = 2
COLUMNS = "{:<7} {:>10} {:>10} {:>8} {:>7}   {}"


class Task(NamedTuple):
    """A prompt and how to decode it."""

    name: str
    prompt: str
    options: dict[str, Any]


TASKS = (
    Task("code", "import os\n\n\ndef find_files(root, suffix):\n", {"raw": True, "temperature": 0}),
    Task("prose", '"""This module provides a class that', {"raw": True, "temperature": 0}),
    Task("chat", "Write a function that returns the largest item of a list.", {"temperature": 0.6}),
)


class Measured(NamedTuple):
    """One task, decoded both ways in turns."""

    name: str
    is_equal: bool
    plain_tok_s: float
    mtp_tok_s: float
    acceptance: list[float | None]


def measure(model: mtplx.Model, task: Task) -> Measured:
    """Alternate between the two ways, so that a busy machine slows both alike."""
    plain, drafted = [], []
    for _ in range(REPEATS):
        plain.append(generate(model, task, mtp=False))
        drafted.append(generate(model, task, mtp=True))
    return Measured(
        task.name,
        is_equal=len({run["text"] for run in (*plain, *drafted)}) == 1,
        plain_tok_s=statistics.median(run["stats"]["decode_tok_s"] for run in plain),
        mtp_tok_s=statistics.median(run["stats"]["decode_tok_s"] for run in drafted),
        acceptance=drafted[-1]["stats"]["acceptance_by_depth"],
    )


def generate(model: mtplx.Model, task: Task, *, mtp: bool) -> dict[str, Any]:
    """One generation as its JSON object."""
    options = {**task.options, "seed": 1, "max_tokens": 192, "ignore_end_tokens": True}
    return model.generate(task.prompt, depth=DEPTH if mtp else 0, **options).to_json()


def main() -> int:
    """Print the table; the exit code tells whether all texts were equal."""
    path = sys.argv[1] if len(sys.argv) > 1 else demo_model_path()
    model = mtplx.load(path)
    print(f"{model.name}: {model.family_name}, {model.tier}, in {path}\n")
    for mtp in (False, True):
        generate(model, TASKS[0], mtp=mtp)
    print(COLUMNS.format("prompt", "text equal", "plain", "MTP", "ratio", "accepted by depth"))
    results = [measure(model, task) for task in TASKS]
    for row in results:
        print(format_row(row))
    print(f"\nplain and MTP (depth {DEPTH}) in tokens a second, the median of {REPEATS} runs each")
    return 0 if all(row.is_equal for row in results) else ExactnessError.exit_code


def format_row(row: Measured) -> str:
    """A line of the table."""
    accepted = " ".join("-" if rate is None else f"{rate:.2f}" for rate in row.acceptance)
    return COLUMNS.format(
        row.name,
        "yes" if row.is_equal else "no",
        f"{row.plain_tok_s:.0f}",
        f"{row.mtp_tok_s:.0f}",
        f"{row.mtp_tok_s / row.plain_tok_s:.2f}x",
        accepted,
    )


if __name__ == "__main__":
    sys.exit(main())
