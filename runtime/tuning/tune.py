"""Finding the depth that is fastest for a model on this machine, and keeping it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from mtplx.contracts.contract_parts import MIN_GAIN
from mtplx.contracts.errors import HeadMissingError, InvalidRequestError, MTPLXError
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.runtime.loading.tokenizer import encode, load_tokenizer, render_chat
from mtplx.runtime.tuning.compare import JobRunner
from mtplx.runtime.tuning.conditions import Conditions, read_conditions
from mtplx.runtime.tuning.prompts import SUITE, BenchPrompt
from mtplx.runtime.tuning.record import DEEPEST, Depth, KnownCosts, TuningRecord, depth_name
from mtplx.runtime.tuning.rounds import Measurement, OnRound
from mtplx.runtime.tuning.rule import Judgement
from mtplx.runtime.tuning.statistics import CONFIDENCE, Gain
from mtplx.runtime.tuning.store import (
    Content,
    DamagedStoreError,
    TuningStore,
    look_up_content,
    signature,
)
from mtplx.runtime.tuning.worker import OWN, Worker

DOMAINS = tuple(SUITE)


class DepthWorker(JobRunner, Protocol):
    """A `JobRunner` that describes itself: device, chip, v, c, o, step_seconds and warnings."""

    about: dict[str, Any]


OpenWorker = Callable[[Path, int | None], AbstractContextManager[DepthWorker]]
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """What to measure: `depths` beside plain decoding, the prompts' `domains`, and seconds for all of it.

    With `retune` a result that holds is measured again; without `save` the result is only given back.

    Raises:
        InvalidRequestError: a value is out of its range; `key` names it.
    """

    depths: tuple[Depth, ...] = (1, 2, 3, 4, 5, 6, "auto")
    domains: tuple[str, ...] = DOMAINS
    budget_s: float = 60.0
    kv_bits: int | None = None
    retune: bool = False
    save: bool = True

    def __post_init__(self) -> None:
        numbers = [depth for depth in self.depths if depth != "auto"]
        is_sound = bool(self.depths) and all(1 <= depth <= DEEPEST for depth in numbers)
        depths = f"one or more of 1 to {DEEPEST} and auto beside plain decoding"
        _check("depths", is_sound, list(self.depths), depths)
        known = set(self.domains) <= set(DOMAINS) and bool(self.domains)
        _check("domains", known, list(self.domains), f"some of {', '.join(DOMAINS)}")
        _check("budget", 1.0 <= self.budget_s < 86_400.0, self.budget_s, "1 second to 1 day")


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The record, whether it `was_known` before, and what became of it.

    `save_error` is why it could not be saved. `warnings` are for the user.
    """

    record: TuningRecord
    was_known: bool
    is_saved: bool
    seconds: float
    warnings: tuple[str, ...]
    save_error: MTPLXError | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable account."""
        return {
            **self.record.model_dump(mode="json"),
            "was_known": self.was_known,
            "is_saved": self.is_saved,
            "seconds": self.seconds,
            "warnings": list(self.warnings),
            "save_error": None if self.save_error is None else self.save_error.to_json(),
        }


@dataclass(frozen=True, slots=True)
class _TunedModel:
    """A model, which content it has, and the `signature` of its files; `is_known`: the store has both."""

    inspection: Inspection
    sign: str
    identity: str
    is_known: bool


def open_worker(folder: Path, kv_bits: int | None) -> AbstractContextManager[DepthWorker]:
    """A process that decodes with mtplx."""
    return Worker(OWN, folder, *([] if kv_bits is None else [str(kv_bits)]))


def tune(
    folder: Path,
    settings: TuneSettings,
    store: TuningStore,
    *,
    start_worker: OpenWorker = open_worker,
    clock: Callable[[], float] = time.monotonic,
    started: float | None = None,
    on_progress: Progress = lambda _label, _fraction: None,
    on_change: OnRound = lambda _measurement: None,
) -> TuneResult:
    """The depth of the store where it holds, else what measuring finds, which is then saved.

    The time for it begins at `started` on the clock, or with this call: loading and hashing the model count.

    Raises:
        HeadMissingError: the model has no head that can be used.
        InvalidRequestError: the time does not suffice.
        MTPLXError: the folder can't be run, or has no tokenizer or chat template.
    """
    start = clock() if started is None else started
    inspection = _inspect(folder)
    prompts = _encode_prompts(inspection, settings.domains)
    content, warnings = _read(store, will_save=settings.save)
    model = _identify(inspection, content, on_progress)
    on_progress("loading the model", 0.0)
    with start_worker(folder, settings.kv_bits) as worker:
        about = worker.about
        warnings += about["warnings"]
        conditions = read_conditions(inspection, about["device"], about["chip"], settings.kv_bits)
        found = look_up_content(content, model.identity, conditions).record
        known = None if settings.retune else found
        record = known
        if record is None:
            measurement = Measurement(
                worker=worker,
                prompts=prompts,
                depths=settings.depths,
                clock=clock,
                started=start,
                budget_s=settings.budget_s,
                on_change=on_change,
            )
            judgement = measurement.run()
            record = _record(model, conditions, measurement, judgement, about)
    warnings += [_unequal(row.depth) for row in record.rows if not row.text_equals_plain]
    save_error = None
    if settings.save:
        try:
            warnings += _save(store, model, record, is_new=known is None)
        except MTPLXError as error:
            save_error = error
    return TuneResult(
        record=record,
        was_known=known is not None,
        is_saved=known is not None or (settings.save and save_error is None),
        seconds=clock() - start,
        warnings=tuple(warnings),
        save_error=save_error,
    )


def _inspect(folder: Path) -> Inspection:
    inspection = inspect_folder(folder)
    inspection.raise_if_unrunnable()
    if not inspection.can_use_head:
        raise HeadMissingError(
            f"{folder} has no MTP head that can be used ({inspection.head.state}): plain decoding "
            "is all there is to measure.",
            hint="Choose a model with a head; `mtplx inspect` says what is missing.",
        )
    return inspection


def _encode_prompts(inspection: Inspection, domains: tuple[str, ...]) -> dict[str, list[list[int]]]:
    """Token ids of all prompts of each domain."""
    tokenizer = load_tokenizer(inspection.path, inspection.eos_token_ids)

    def ids(prompt: BenchPrompt) -> list[int]:
        if prompt.raw:
            return encode(tokenizer, prompt.text)
        return render_chat(tokenizer, [{"role": "user", "content": prompt.text}], inspection.path)

    return {domain: [ids(prompt) for prompt in SUITE[domain]] for domain in domains}


def _read(store: TuningStore, *, will_save: bool) -> tuple[Content, list[str]]:
    """What is stored, and what is wrong with it: no reason not to measure."""
    try:
        return store.read(), []
    except DamagedStoreError as error:
        # Saving sets it aside and says so.
        return Content(), [] if will_save else [str(error)]
    except MTPLXError as error:
        return Content(), [str(error)]


def _identify(inspection: Inspection, content: Content, on_progress: Progress) -> _TunedModel:
    """Look the model up by its files' times, or hash them."""

    def report(done: int, total: int) -> None:
        on_progress("hashing the model", done / max(total, 1))

    sign = signature(inspection)
    known = content.folders.get(sign)
    if known is not None:
        return _TunedModel(inspection, sign, known.identity, is_known=True)
    identity = inspection.compute_identity(report).combined
    return _TunedModel(inspection, sign, identity, is_known=False)


def _save(
    store: TuningStore, model: _TunedModel, record: TuningRecord, *, is_new: bool
) -> list[str]:
    if is_new:
        return store.save(record, model.inspection, model.sign)
    if not model.is_known:
        return store.remember_folder(model.inspection, model.sign, model.identity)
    return []


def _record(
    model: _TunedModel,
    conditions: Conditions,
    measurement: Measurement,
    judgement: Judgement,
    about: Mapping[str, Any],
) -> TuningRecord:
    return TuningRecord(
        identity=model.identity,
        model=model.inspection.path.resolve().name,
        time=datetime.now(UTC),
        conditions=conditions,
        depth=judgement.winner,
        reason=_reason(judgement, measurement.left_out),
        is_decided=judgement.is_decided and not measurement.left_out,
        rounds=measurement.rounds,
        confidence=CONFIDENCE,
        tokens=measurement.tokens,
        domains=tuple(measurement.prompts),
        rows=tuple(measurement.rows()),
        costs=KnownCosts(**{name: about[name] for name in KnownCosts.model_fields}),
    )


def _reason(judgement: Judgement, left_out: Sequence[Depth]) -> str:
    """Why this depth, in one sentence."""
    doubt = "" if judgement.is_decided else "; others are too close to tell"
    if left_out:
        names = ", ".join(depth_name(depth) for depth in left_out)
        doubt += f"; there was no time for more rounds of {names}"
    if judgement.winner != 0:
        return f"{depth_name(judgement.winner)} is {_figures(judgement.gains[judgement.winner])}{doubt}"
    best = max(judgement.gains, key=lambda depth: judgement.gains[depth].median)
    is_sure = judgement.is_decided and not left_out
    return (
        f"no depth {'is' if is_sure else 'could be shown to be'} {100 * (MIN_GAIN - 1):.0f} % faster than plain "
        f"decoding; the best, {depth_name(best)}, is {_figures(judgement.gains[best])}{doubt}"
    )


def _figures(found: Gain) -> str:
    return f"{found.median:.2f} times as fast as plain ({found.low:.2f} to {found.high:.2f})"


def _unequal(depth: Depth) -> str:
    return (
        f"{depth_name(depth)} did not give the text of plain decoding; `mtplx forge verify` tells "
        "rounding of equally likely tokens from an error"
    )


def _check(key: str, condition: bool, found: object, expected: str) -> None:
    if not condition:
        raise InvalidRequestError(f"{key} is {found!a}, expected {expected}.", key=key)
