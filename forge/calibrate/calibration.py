"""How a head is wired and its norms are stored, found by measuring agreement with the trunk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mtplx.contracts.errors import CalibrationError, HeadMissingError, UsageError
from mtplx.contracts.family import Wiring
from mtplx.forge.calibrate.agreement import Window, read_window
from mtplx.forge.calibrate.candidates import Candidate
from mtplx.forge.calibrate.decisions import Decisions
from mtplx.forge.calibrate.norms import HeadNorms, head_norms
from mtplx.forge.calibrate.scoring import Scorer
from mtplx.forge.calibrate.search import search
from mtplx.forge.calibrate.texts import describe
from mtplx.runtime.model import Model
from mtplx.runtime.trunks.trunk import Trunk

Progress = Callable[[str, float], None]

DEPTHS = 3
# Short windows keep attention cheap; a head needs little context to be told right from wrong.
_WINDOW = 256
_SHORTEST_WINDOW = 16
_SHOWN = 5
# Shares of the work that are done when the trunk has read the text, and when the axes are decided.
_READ, _DECIDED = 0.2, 0.95
_USUAL_CANDIDATES = 150


@dataclass(frozen=True, slots=True)
class Score:
    """What one candidate reached. `agreement` by depth; candidates that fell behind were left after fewer `rows`."""

    wiring: Wiring
    norm_shift: dict[str, int]
    agreement: tuple[float, ...]
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "agreement": list(self.agreement)}


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found, and the evidence.

    `norm_shift` is what must be added to gains, by names relative to the published head; empty when the head is
    sound as loaded. `decided_by` says for each axis how: `significance.Reason`; `immaterial` means that whatever is
    chosen makes no difference to speak of. The p-value of the closest rival is in `p_values`. `agreement` is that of
    the result at depth 1, 2, 3.
    """

    wiring: Wiring
    norm_shift: dict[str, int]
    scores: tuple[Score, ...]
    decided_by: dict[str, str]
    p_values: dict[str, float]
    text: dict[str, Any]
    agreement: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for a contract or a report."""
        return {
            **asdict(self),
            "scores": [score.to_json() for score in self.scores],
            "agreement": list(self.agreement),
        }


def calibrate(
    model: Model,
    texts: Sequence[Sequence[int]],
    *,
    floor: float = 0.2,
    on_progress: Progress | None = None,
) -> Calibration:
    """Find the wiring of the head of `model` and the shift of its norms by teacher-forced agreement on `texts`.

    The trunk reads each text once; every candidate then costs a forward of the head. Feed, concatenation order and
    norm gains are decided at depth 1, recycling at depths 2 and 3, there by the likelihood of the text where agreement
    can't tell. The model is left as it was.

    Raises:
        HeadMissingError: the model has no head loaded.
        UsageError: the texts are too short to measure anything.
        CalibrationError: the best candidate agrees on less than `floor` of the rows at depth 1, or options of an axis
        are equal and the family's default is not among them.
    """
    family = model.inspection.family
    if model.head is None or family is None:
        raise HeadMissingError(
            f"{model.path} has no MTP head to calibrate", hint="load it with its head"
        )
    report = on_progress or (lambda _label, _fraction: None)
    norms = head_norms(model, model.head)
    windows = _read(model.trunk, texts, report)
    scorer = Scorer(model.head, model.trunk, norms, windows, _counter(report))
    best = search(scorer, Candidate(family.wiring, (0,) * len(norms)))
    _check_floor(model, scorer, best, norms, floor)
    decisions = Decisions(scorer, best, family.wiring)
    adopted = decisions.decide(norms.names, norms.output)
    agreement = tuple(float(scorer.hits(adopted, d).mean()) for d in range(1, DEPTHS + 1))
    report("calibrated", 1.0)
    return Calibration(
        wiring=adopted.wiring,
        norm_shift=adopted.norm_shift(norms.names),
        scores=tuple(_scores(scorer, norms)),
        decided_by={axis: choice.reason for axis, choice in decisions.made.items()},
        p_values={axis: choice.p for axis, choice in decisions.made.items()},
        text=describe(texts),
        agreement=agreement,
    )


def _read(trunk: Trunk, texts: Sequence[Sequence[int]], report: Progress) -> list[Window]:
    """The texts cut into windows, one of each text in turn, so that the first few cover all kinds."""
    cuts = [[text[i : i + _WINDOW] for i in range(0, len(text), _WINDOW)] for text in texts]
    mixed = [cut for turn in itertools.zip_longest(*cuts) for cut in turn if cut is not None]
    long_enough = [cut for cut in mixed if len(cut) >= _SHORTEST_WINDOW]
    if not long_enough:
        raise UsageError(
            f"the calibration text has {sum(map(len, texts))} tokens in {len(texts)} texts, and none of them "
            f"has {_SHORTEST_WINDOW}",
            hint="give some thousand tokens of text",
        )
    windows = []
    for number, cut in enumerate(long_enough):
        report("reading the calibration text", _READ * number / len(long_enough))
        windows.append(read_window(trunk, cut))
    return windows


def _counter(report: Progress) -> Callable[[int], None]:
    def count(tried: int) -> None:
        done = min(1.0, tried / _USUAL_CANDIDATES)
        report(f"{tried} ways to wire the head tried", _READ + (_DECIDED - _READ) * done)

    return count


def _check_floor(
    model: Model, scorer: Scorer, best: Candidate, norms: HeadNorms, floor: float
) -> None:
    if scorer.hits(best, 1).mean() >= floor:
        return
    ranked = sorted(scorer.tried, key=lambda c: -scorer.agreement(c)[0])[:_SHOWN]
    table = "; ".join(
        f"{scorer.agreement(c)[0]:.1%} of {scorer.num_rows(c)} rows with {c.describe(norms.names)}"
        for c in ranked
    )
    raise CalibrationError(
        f"{model.path}: none of {len(scorer.tried)} ways to wire the head agrees with the trunk often enough, "
        f"expected at least {floor:.0%}. Best: {table}",
        hint="the head belongs to another trunk or is damaged: download it again, or use another source",
    )


def _scores(scorer: Scorer, norms: HeadNorms) -> Iterator[Score]:
    """All candidates, those measured on most rows first, the best first."""
    for candidate in sorted(
        scorer.tried, key=lambda c: (-scorer.num_rows(c), -scorer.agreement(c)[0])
    ):
        yield Score(
            candidate.wiring,
            candidate.norm_shift(norms.names),
            scorer.agreement(candidate),
            scorer.num_rows(candidate),
        )
