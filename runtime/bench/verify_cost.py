"""What the parts of a round cost: v by rows, c by drafts and o by depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtplx.runtime.bench.part import Interval, Options
from mtplx.runtime.bench.report import (
    DraftCost,
    RoundCost,
    VerifyCost,
    VerifyCostPart,
    VerifyCostReport,
)
from mtplx.runtime.bench.session import Progress, open_session
from mtplx.runtime.bench.settings import check
from mtplx.runtime.bench.tasks import ROUNDS_PER_DEPTH, CostsTask, RoundTimes
from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.tuning.statistics import CONFIDENCE, least_pairs

_MOST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyCostSettings:
    """Forwards over 1 to `rows` rows and rounds of up to `depth` drafts, behind each of the `contexts` (in tokens).

    Raises:
        InvalidRequestError: a value is out of its range; `key` names it.
    """

    rows: int = 16
    depth: int = 4
    contexts: tuple[int, ...] = (128,)
    repeats: int = 15

    def __post_init__(self) -> None:
        check("rows", self.rows, 2, _MOST_ROWS)
        check("depth", self.depth, 1, min(MAX_DEPTH, self.rows - 1))
        check("repeats", self.repeats, 1)

    @property
    def tokens_taken(self) -> int:
        """The most that the context grows by, the warm-up included, and the rows after it."""
        rounds = ROUNDS_PER_DEPTH * self.depth * (self.repeats + 1)
        return rounds + max(self.rows, self.depth + 1) + 1


def measure_costs(
    folder: Path,
    settings: VerifyCostSettings,
    options: Options,
    *,
    on_progress: Progress = lambda _label, _fraction: None,
) -> VerifyCostReport:
    """Time every part once in turn, again and again.

    Raises:
        MTPLXError: the folder can't be run, or a context has no room.
    """
    with open_session(folder, options, with_stock=False, on_progress=on_progress) as session:
        contexts = session.fit(settings.contexts, settings.tokens_taken, insist=True)
        depth = settings.depth if session.has_head else 0
        if not depth:
            session.leave_out_head("drafts, and rounds with drafts")
        needed = least_pairs(CONFIDENCE)
        if settings.repeats < needed:
            session.warnings.append(
                f"{settings.repeats} repeats cannot carry intervals of {CONFIDENCE:.0%}; {needed} can"
            )
        parts = []
        for number, context in enumerate(contexts):
            prompt = session.texts.long_prompt(context)
            task = CostsTask(prompt, settings.rows, depth, options.prefill_chunk)
            times = []
            for repeat in range(settings.repeats):
                done = (number + repeat / settings.repeats) / len(contexts)
                on_progress(f"rounds behind {context} tokens", done)
                times.append(session.own.costs(task))
            parts.append(to_part(context, times))
        return VerifyCostReport(
            **session.close(),
            repeats=settings.repeats,
            repeats_needed=needed,
            confidence=CONFIDENCE,
            parts=tuple(parts),
        )


def to_part(context: int, times: Sequence[RoundTimes]) -> VerifyCostPart:
    """Medians and intervals of what was timed once each repeat, over the plain forward of the same repeat."""
    unit = [each.verify[0] for each in times]
    rows = range(len(times[0].verify))
    drafts = range(len(times[0].drafts))
    rounds = range(len(times[0].rounds))
    return VerifyCostPart(
        context=context,
        verify=tuple(_verify_cost(row + 1, [t.verify[row] for t in times], unit) for row in rows),
        drafts=tuple(_draft_cost(d + 1, [t.drafts[d] for t in times], unit) for d in drafts),
        rounds=tuple(_round_cost(depth, times, unit) for depth in rounds),
    )


def _verify_cost(rows: int, seconds: list[float], unit: list[float]) -> VerifyCost:
    return VerifyCost(
        rows=rows, seconds=Interval.around(seconds), v=Interval.of_ratio(seconds, unit)
    )


def _draft_cost(depth: int, seconds: list[float], unit: list[float]) -> DraftCost:
    c = Interval.of_ratio(seconds, unit)
    return DraftCost(depth=depth, c=c, c_per_draft=c.median / depth)


def _round_cost(depth: int, times: Sequence[RoundTimes], unit: list[float]) -> RoundCost:
    beside = [
        t.rounds[depth] - t.verify[depth] - (t.drafts[depth - 1] if depth else 0.0) for t in times
    ]
    return RoundCost(
        depth=depth,
        seconds=Interval.around([t.rounds[depth] for t in times]),
        o=Interval.of_ratio(beside, unit),
    )
