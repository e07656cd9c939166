"""Ways of decoding that take turns on the same prompts, so that drift of the machine slows all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from mtplx.runtime.tuning.job import Job, Outcome

# Enough for every shape of a round to be compiled.
_WARM_UP_TOKENS = 16


class JobRunner(Protocol):
    """What decodes: a `Worker`, as far as measuring needs it."""

    def run(self, job: Job) -> Outcome:
        """Decode once."""


@dataclass(slots=True)
class System:
    """One way of decoding, and what it did: `outcomes[prompt]` has one entry a repeat."""

    name: str
    worker: JobRunner
    depth: int | None
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)

    def job(self, prompt: Sequence[int], max_tokens: int) -> Job:
        """What the worker is asked."""
        return Job(list(prompt), max_tokens, self.depth)

    def repeat_speed(self, repeat: int) -> float:
        """Tokens a second over all prompts of one repeat."""
        runs = [outcomes[repeat] for outcomes in self.outcomes.values()]
        tokens = sum(len(run.tokens) - 1 for run in runs)
        return tokens / sum((len(run.tokens) - 1) / run.decode_tok_s for run in runs)

    def speeds(self) -> list[float]:
        """`repeat_speed` of every repeat."""
        repeats = len(next(iter(self.outcomes.values()), []))
        return [self.repeat_speed(repeat) for repeat in range(repeats)]

    def acceptance_by_domain(self) -> dict[str, list[float]]:
        """Share of the drafts of each depth that was accepted, unconditional on those before.

        Greedy decoding does the same in every repeat, so the first one tells.
        """
        return {domain: acceptance(runs[:1]) for domain, runs in self.outcomes.items()}


def acceptance(outcomes: Sequence[Outcome]) -> list[float]:
    """Share of the drafts of each depth that was accepted, over all `outcomes`."""
    drafted = sum_columns(outcome.drafted_by_depth for outcome in outcomes)
    accepted = sum_columns(outcome.accepted_by_depth for outcome in outcomes)
    return [kept / tried for tried, kept in zip(drafted, accepted, strict=True) if tried]


def sum_columns(counts: Iterable[list[int]]) -> list[int]:
    """Sums by position; a shorter list counts nothing behind its end."""
    return [sum(column) for column in zip_longest(*counts, fillvalue=0)]


def measure(
    systems: Sequence[System],
    prompts: Mapping[str, Sequence[int]],
    repeats: int,
    max_tokens: int,
    on_progress: Callable[[str, float], None],
) -> None:
    """Let every system decode every prompt in turns, `repeats` times after a warm-up; they keep their outcomes."""
    total = (repeats + 1) * len(prompts) * len(systems)
    done = 0
    for repeat in range(repeats + 1):
        # The first round warms up: it compiles, and fills the file cache.
        is_warm = repeat > 0
        tokens = max_tokens if is_warm else min(max_tokens, _WARM_UP_TOKENS)
        for name, prompt in prompts.items():
            for system in systems:
                outcome = system.worker.run(system.job(prompt, tokens))
                if is_warm:
                    system.outcomes.setdefault(name, []).append(outcome)
                done += 1
                on_progress(f"{system.name} on {name}", done / total)
