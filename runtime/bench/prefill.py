"""Time to the first token by length of the prompt and size of the chunks, with and without the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtplx.runtime.bench.measurer import Measurer
from mtplx.runtime.bench.part import Interval, Options
from mtplx.runtime.bench.report import PrefillReport, PrefillRow
from mtplx.runtime.bench.session import MLX_LM, Progress, Session, open_session
from mtplx.runtime.bench.settings import check
from mtplx.runtime.bench.tasks import PrefillTask, PrefillTimes
from mtplx.runtime.tuning.statistics import CONFIDENCE, least_pairs

LENGTHS = (128, 512, 2048, 8192)
PLAIN, PRIMED = "plain", "primed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillSettings:
    """Prompts of so many tokens in chunks of so many.

    Of the usual lengths (`lengths` None) those without room are left out; lengths that were asked for are insisted
    on. No `chunks` are the one of the options.

    Raises:
        InvalidRequestError: a value is out of its range; `key` names it.
    """

    lengths: tuple[int, ...] | None = None
    chunks: tuple[int, ...] = ()
    repeats: int = 7

    def __post_init__(self) -> None:
        for length in self.lengths or ():
            check("lengths", length, 1)
        for chunk in self.chunks:
            check("chunks", chunk, 1)
        check("repeats", self.repeats, 1)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A way of reading prompts."""

    name: str
    measurer: Measurer
    use_head: bool = False


def measure_prefill(
    folder: Path,
    settings: PrefillSettings,
    options: Options,
    *,
    with_stock: bool,
    on_progress: Progress = lambda _label, _fraction: None,
) -> PrefillReport:
    """Read each prompt with every system in turns, after a warm-up.

    Raises:
        MTPLXError: the folder can't be run, or a length has no room.
    """
    with open_session(folder, options, with_stock=with_stock, on_progress=on_progress) as session:
        lengths = session.fit(settings.lengths or LENGTHS, 1, insist=settings.lengths is not None)
        chunks = settings.chunks or (options.prefill_chunk,)
        if not session.has_head:
            session.leave_out_head(PRIMED)
        needed = least_pairs(CONFIDENCE)
        if settings.repeats < needed:
            session.warnings.append(
                f"{settings.repeats} repeats cannot carry intervals of {CONFIDENCE:.0%}; {needed} can"
            )
        rows: list[PrefillRow] = []
        points = [(length, chunk) for length in lengths for chunk in sorted(set(chunks))]
        for number, (length, chunk) in enumerate(points):
            task = PrefillTask(session.texts.long_prompt(length), chunk)

            def tell(repeat: int, number: int = number, length: int = length) -> None:
                done = (number + repeat / (settings.repeats + 1)) / len(points)
                on_progress(f"reading {length} tokens", done)

            rows += to_rows(length, chunk, _measure(session, task, settings.repeats, tell))
        return PrefillReport(
            **session.close(),
            repeats=settings.repeats,
            repeats_needed=needed,
            confidence=CONFIDENCE,
            rows=tuple(rows),
        )


def _measure(
    session: Session, task: PrefillTask, repeats: int, tell: Callable[[int], None]
) -> dict[str, list[PrefillTimes]]:
    """What each reader took, by name; each repeat asks all of them in turn, the first one warms up."""
    readers = [_Reader(PLAIN, session.own)]
    if session.has_head:
        readers.append(_Reader(PRIMED, session.own, use_head=True))
    stock = session.answering_stock([task], f" from {len(task.prompt)} tokens on")
    if stock is not None:
        readers.append(_Reader(MLX_LM, stock))
    times: dict[str, list[PrefillTimes]] = {reader.name: [] for reader in readers}
    for repeat in range(repeats + 1):
        tell(repeat)
        for reader in readers:
            asked = PrefillTask(task.prompt, task.chunk, reader.use_head)
            found = reader.measurer.prefill(asked)
            if repeat:
                times[reader.name].append(found)
    return times


def to_rows(
    length: int, chunk: int, times: Mapping[str, Sequence[PrefillTimes]]
) -> list[PrefillRow]:
    """A row for each reader; `times` have one entry a repeat."""
    seconds = {name: [found.ttft_s for found in each] for name, each in times.items()}

    def over(name: str, base: str) -> Interval | None:
        """Speed, not time: a reader that takes half as long is twice as fast."""
        if name == base or base not in seconds:
            return None
        return Interval.of_ratio(seconds[base], seconds[name])

    return [
        PrefillRow(
            name=name,
            length=length,
            chunk=chunk,
            ttft_s=Interval.around(seconds[name]),
            tok_s=Interval.around([length / taken for taken in seconds[name]]),
            head_rest_s=_rest(found),
            over_plain=over(name, PLAIN),
            over_mlx_lm=over(name, MLX_LM),
            peak_bytes=max(each.peak_bytes for each in found),
        )
        for name, found in times.items()
    ]


def _rest(times: Sequence[PrefillTimes]) -> Interval | None:
    rests = [found.head_rest_s for found in times if found.head_rest_s is not None]
    return Interval.around(rests) if rests else None
