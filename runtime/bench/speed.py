"""Decoding speed: plain, MTP by depth and stock mlx-lm, in turns on the same prompts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from mtplx.runtime.bench.part import Interval, Options, Sampling
from mtplx.runtime.bench.report import SpeedPart, SpeedReport, SpeedRow
from mtplx.runtime.bench.session import MLX_LM, Progress, Session, open_session
from mtplx.runtime.bench.settings import check
from mtplx.runtime.bench.tasks import DecodeTask
from mtplx.runtime.bench.texts import ENDING
from mtplx.runtime.tuning.compare import System, acceptance, measure
from mtplx.runtime.tuning.job import Outcome
from mtplx.runtime.tuning.paired import chance_of_equals
from mtplx.runtime.tuning.prompts import MOST_PROMPTS, domain_of
from mtplx.runtime.tuning.statistics import gain, least_pairs, simultaneous_confidence

Depth = int | Literal["auto"]
Verdict = Literal["faster", "slower", "open"]
PLAIN = "plain"

# Enough to see whether mlx-lm can decode after a prompt at all.
_TRIAL_TOKENS = 2

_GREEDY = Sampling()
_PATTERN = DecodeTask([], _TRIAL_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSettings:
    """What to decode: `prompts` of each domain and, beside them, one prompt in each of the `contexts` (in tokens).

    Raises:
        InvalidRequestError: a value is out of its range; `key` names it.
    """

    depths: tuple[Depth, ...] = (1, 2, 3, 4, "auto")
    prompts: int = 1
    contexts: tuple[int, ...] = ()
    repeats: int = 9
    max_tokens: int = 128
    sampling: Sampling = _GREEDY

    def __post_init__(self) -> None:
        check("prompts", self.prompts, 1, MOST_PROMPTS)
        check("repeats", self.repeats, 1)
        check("max_tokens", self.max_tokens, 2)


@dataclass(slots=True)
class BenchSystem(System):
    """A way of decoding whose jobs are made after a pattern."""

    pattern: DecodeTask = _PATTERN

    def job(self, prompt: Sequence[int], max_tokens: int) -> DecodeTask:
        """The pattern with prompt, length and depth."""
        return replace(self.pattern, prompt=list(prompt), max_tokens=max_tokens, depth=self.depth)


def compare_speed(
    folder: Path,
    settings: SpeedSettings,
    options: Options,
    *,
    with_stock: bool,
    on_progress: Progress = lambda _label, _fraction: None,
) -> SpeedReport:
    """Decode with every system in turns, A B C, A B C, ..., after a warm-up, and report all rows.

    Raises:
        MTPLXError: the folder can't be run, or a context has no room.
    """
    with open_session(folder, options, with_stock=with_stock, on_progress=on_progress) as session:
        suite = session.texts.choose(settings.prompts)
        session.require_room(suite, settings.max_tokens)
        contexts = session.fit(settings.contexts, settings.max_tokens, insist=True)
        depths = settings.depths if session.has_head else ()
        if not depths:
            session.leave_out_head(", ".join(f"mtp-{depth}" for depth in settings.depths))
        confidence = simultaneous_confidence(len(depths) + with_stock)
        needed = least_pairs(confidence)
        if settings.repeats < needed:
            session.warnings.append(
                f"{settings.repeats} repeats cannot tell faster from slower at {confidence:.1%}; {needed} can"
            )
        groups: list[_Group] = [_Group(None, suite)]
        groups += [_Group(size, {ENDING: session.texts.long_prompt(size)}) for size in contexts]
        parts = []
        for number, group in enumerate(groups):
            tell = partial(_share, number, len(groups), on_progress)
            parts.append(_measure_part(session, settings, depths, group, confidence, tell))
        return SpeedReport(
            **session.close(),
            repeats=settings.repeats,
            repeats_needed=needed,
            confidence=confidence,
            max_tokens=settings.max_tokens,
            sampling=settings.sampling,
            parts=tuple(parts),
        )


class _Group(NamedTuple):
    """Prompts that are measured together; `context` as in the report."""

    context: int | None
    prompts: dict[str, list[int]]


def _share(number: int, count: int, on_progress: Progress, label: str, fraction: float) -> None:
    """Progress of one of several parts."""
    on_progress(label, (number + fraction) / count)


def _measure_part(
    session: Session,
    settings: SpeedSettings,
    depths: Sequence[Depth],
    group: _Group,
    confidence: float,
    on_progress: Progress,
) -> SpeedPart:
    systems = _systems(session, depths, settings.sampling, group)
    measure(systems, group.prompts, settings.repeats, settings.max_tokens, on_progress)
    rows = _rows(systems, confidence)
    session.warnings += _unequal(rows, settings.sampling, session.options)
    return SpeedPart(
        context=group.context,
        prompt_tokens={name: len(ids) for name, ids in group.prompts.items()},
        rows=rows,
    )


def _systems(
    session: Session, depths: Sequence[Depth], sampling: Sampling, group: _Group
) -> list[BenchSystem]:
    options = session.options
    pattern = replace(
        _PATTERN,
        acceptance=options.acceptance,
        prefill_chunk=options.prefill_chunk,
        **sampling.model_dump(),
    )
    systems = [BenchSystem(PLAIN, session.own, 0, pattern=pattern)]
    systems += [
        BenchSystem(f"mtp-{d}", session.own, None if d == "auto" else d, pattern=pattern)
        for d in depths
    ]
    trials = [replace(pattern, prompt=ids) for ids in group.prompts.values()]
    where = "" if group.context is None else f" from {group.context} tokens on"
    stock = session.answering_stock(trials, where)
    if stock is not None:
        systems.append(BenchSystem(MLX_LM, stock, 0, pattern=pattern))
    return systems


def _rows(systems: Sequence[System], confidence: float) -> tuple[SpeedRow, ...]:
    plain = systems[0]
    stock = next((system for system in systems if system.name == MLX_LM), None)
    return tuple(_row(system, plain, stock, confidence) for system in systems)


def _row(system: System, plain: System, stock: System | None, confidence: float) -> SpeedRow:
    speeds, outcomes = system.speeds(), system.outcomes
    runs = [run for repeats in outcomes.values() for run in repeats]
    over_plain = Interval.of_ratio(speeds, plain.speeds(), confidence)
    peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
    return SpeedRow(
        name=system.name,
        tok_s=Interval.around(speeds, confidence),
        tok_s_by_repeat=tuple(speeds),
        tok_s_by_domain={
            domain: statistics.median(run.decode_tok_s for repeats in group for run in repeats)
            for domain, group in _by_domain(outcomes).items()
        },
        over_plain=over_plain,
        over_mlx_lm=(
            None if stock is None else Interval.of_ratio(speeds, stock.speeds(), confidence)
        ),
        verdict=None if system is plain else judge(speeds, plain.speeds(), confidence),
        ttft_s=Interval.around(_ttft_by_repeat(outcomes), confidence),
        peak_bytes=max(peaks, default=None),
        tokens_per_round=sum(len(run.tokens) - 1 for run in runs) / sum(run.rounds for run in runs),
        acceptance=tuple(acceptance([repeats[0] for repeats in outcomes.values()])),
        acceptance_by_domain={
            domain: tuple(acceptance([repeats[0] for repeats in group]))
            for domain, group in _by_domain(outcomes).items()
        },
        text_equals_plain={
            name: all(run.tokens == plain.outcomes[name][0].tokens for run in repeats)
            for name, repeats in outcomes.items()
        },
    )


def judge(speeds: Sequence[float], base: Sequence[float], confidence: float) -> Verdict:
    """Whether `speeds` are surely above or below those of plain decoding, paired by repeat.

    The bootstrap interval has to lie on one side of 1, and the signed ranks have to agree: with few repeats the
    interval of a median alone is too narrow.
    """
    ratio = gain(speeds, base, confidence=confidence)
    chance = (1.0 - confidence) / 2.0
    if ratio.low > 1.0 and chance_of_equals(speeds, base) <= chance:
        return "faster"
    if ratio.high < 1.0 and chance_of_equals(base, speeds) <= chance:
        return "slower"
    return "open"


def _by_domain(outcomes: Mapping[str, list[Outcome]]) -> dict[str, list[list[Outcome]]]:
    groups: dict[str, list[list[Outcome]]] = {}
    for name, repeats in outcomes.items():
        groups.setdefault(domain_of(name), []).append(repeats)
    return groups


def _ttft_by_repeat(outcomes: Mapping[str, list[Outcome]]) -> list[float]:
    """Mean over the prompts."""
    return [
        statistics.fmean(run.ttft_s for run in repeat)
        for repeat in zip(*outcomes.values(), strict=True)
    ]


def _unequal(rows: Sequence[SpeedRow], sampling: Sampling, options: Options) -> list[str]:
    """Texts that ought to equal that of plain decoding and do not."""
    if sampling.temperature > 0 and options.acceptance != "coupled":
        return []
    return [
        f"the text of {row.name} differs from that of plain decoding on {', '.join(unequal)}"
        for row in rows
        if row.name != MLX_LM
        and (unequal := [name for name, is_equal in row.text_equals_plain.items() if not is_equal])
    ]
