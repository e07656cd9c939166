"""Speed: plain decoding against each depth, in turns, in a process of their own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mtplx.forge.verify.prompts import EncodedPrompt, one_of_each_domain
from mtplx.forge.verify.settings import VerifySettings
from mtplx.runtime.tuning.compare import JobRunner, System, acceptance, measure
from mtplx.runtime.tuning.statistics import (
    Gain,
    best_win,
    gain,
    least_pairs,
    simultaneous_confidence,
)
from mtplx.runtime.tuning.worker import OWN, Worker

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One way of decoding; depth 0 is plain. `speeds` are tokens a second of each repeat over all prompts.

    `acceptance` is the share of the drafts of each depth that stayed, whatever the depths before them did.
    """

    depth: int
    speeds: tuple[float, ...]
    gain: Gain
    acceptance: tuple[float, ...]
    acceptance_by_domain: dict[str, list[float]]

    @property
    def tok_s(self) -> float:
        """The median."""
        return statistics.median(self.speeds)

    def to_json(self) -> dict[str, Any]:
        """Under the names of the public format."""
        return {
            "depth": self.depth,
            "tok_s": self.tok_s,
            "multiplier_vs_ar": self.gain.median,
            "gain_interval": [self.gain.low, self.gain.high] if self.depth else None,
            "acceptance_by_position": list(self.acceptance),
            "acceptance_by_domain": self.acceptance_by_domain,
            "tok_s_by_repeat": list(self.speeds),
        }


@dataclass(frozen=True, slots=True)
class SpeedResult:
    """Plain decoding first, then each depth.

    `confidence` is that of each interval, `device` what the measuring process computed on.
    """

    rows: tuple[SpeedRow, ...]
    confidence: float
    device: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plain(self) -> SpeedRow:
        """Plain decoding."""
        return self.rows[0]

    @property
    def repeats(self) -> int:
        """How often each speed was measured."""
        return len(self.plain.speeds)

    @property
    def repeats_needed(self) -> int:
        """How often each has to be measured for intervals of this confidence."""
        return least_pairs(self.confidence)

    @property
    def winner(self) -> SpeedRow | None:
        """The depth that surely wins by 5 % or more; None when none does, or too few repeats could tell."""
        if self.repeats < self.repeats_needed:
            return None
        depth = best_win({row.depth: row.gain for row in self.rows[1:]})
        return next((row for row in self.rows if row.depth == depth), None)

    @property
    def best(self) -> SpeedRow:
        """The winner, or else the fastest depth."""
        return self.winner or max(self.rows[1:], key=lambda row: row.gain.median)

    @property
    def best_acceptance(self) -> float:
        """The highest share of first drafts that stayed at any depth."""
        return max((row.acceptance[0] for row in self.rows[1:] if row.acceptance), default=0.0)


def measure_speed(
    folder: Path,
    prompts: Sequence[EncodedPrompt],
    settings: VerifySettings,
    on_progress: Progress,
) -> SpeedResult:
    """Decode the first prompt of each domain greedily, plainly and at each depth in turns.

    Raises:
        BackendError: the measuring process ended.
    """
    chosen = {prompt.domain: prompt.ids for prompt in one_of_each_domain(prompts)}
    with Worker(OWN, folder) as worker:
        found = compare_depths(worker, chosen, settings, on_progress)
        return replace(found, device=worker.about["device"])


def compare_depths(
    worker: JobRunner,
    prompts: Mapping[str, Sequence[int]],
    settings: VerifySettings,
    on_progress: Progress,
) -> SpeedResult:
    """Let `worker` decode with every depth in turns, and compare repeat by repeat."""
    systems = [System("plain" if not d else f"depth {d}", worker, d) for d in (0, *settings.depths)]
    measure(systems, prompts, settings.repeats, settings.max_tokens, on_progress)
    base = systems[0].speeds()
    confidence = simultaneous_confidence(len(settings.depths))
    return SpeedResult(tuple(_row(system, base, confidence) for system in systems), confidence)


def _row(system: System, base: Sequence[float], confidence: float) -> SpeedRow:
    runs = [outcomes[0] for outcomes in system.outcomes.values()]
    return SpeedRow(
        depth=system.depth or 0,
        speeds=tuple(system.speeds()),
        gain=gain(system.speeds(), base, confidence=confidence),
        acceptance=tuple(acceptance(runs)),
        acceptance_by_domain=system.acceptance_by_domain() if system.depth else {},
    )
