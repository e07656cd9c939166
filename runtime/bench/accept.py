"""How many drafts stay, by depth, domain and law; nothing is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtplx.contracts.errors import HeadMissingError, InvalidRequestError
from mtplx.runtime.bench.part import Interval, Options, Sampling
from mtplx.runtime.bench.report import AcceptReport, AcceptRow
from mtplx.runtime.bench.session import Progress, open_session
from mtplx.runtime.bench.settings import check
from mtplx.runtime.bench.tasks import DecodeTask
from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.tuning.compare import acceptance, sum_columns
from mtplx.runtime.tuning.job import Outcome
from mtplx.runtime.tuning.prompts import MOST_PROMPTS, domain_of
from mtplx.runtime.tuning.statistics import CONFIDENCE, least_pairs

GREEDY, COUPLED = "greedy", "coupled"
LAWS = (COUPLED, "rejection", "block")
ALL = "all"
_SAMPLING = Sampling(temperature=0.8, top_p=0.95, top_k=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptSettings:
    """Drafts of `depth` each round; `sampling` is that of the laws, beside which greedy decoding is measured.

    Raises:
        InvalidRequestError: a value is out of its range; `key` names it.
    """

    depth: int = 4
    prompts: int = MOST_PROMPTS
    max_tokens: int = 64
    sampling: Sampling = _SAMPLING

    def __post_init__(self) -> None:
        check("depth", self.depth, 1, MAX_DEPTH)
        check("prompts", self.prompts, 1, MOST_PROMPTS)
        check("max_tokens", self.max_tokens, 2)
        if self.sampling.temperature <= 0:
            raise InvalidRequestError(
                "temperature is 0, and greedy decoding, in which all laws are one, is measured "
                "anyway; expected a number above 0",
                key="temperature",
            )


def measure_acceptance(
    folder: Path,
    settings: AcceptSettings,
    options: Options,
    *,
    on_progress: Progress = lambda _label, _fraction: None,
) -> AcceptReport:
    """Decode every prompt greedily and under each law.

    Raises:
        HeadMissingError: there is no head whose drafts could be counted.
        MTPLXError: the folder can't be run.
    """
    with open_session(folder, options, with_stock=False, on_progress=on_progress) as session:
        if not session.has_head:
            raise HeadMissingError(
                f"{folder} has no MTP head that can be used ({session.inspection.head.state}): "
                "there are no drafts to count.",
                hint="Choose a model with a head; `mtplx inspect` says what is missing.",
            )
        prompts = session.texts.choose(settings.prompts)
        session.require_room(prompts, settings.max_tokens)
        patterns = _patterns(settings, options)
        outcomes: dict[str, dict[str, Outcome]] = {name: {} for name in patterns}
        for number, (name, ids) in enumerate(prompts.items()):
            on_progress(f"drafts on {name}", number / len(prompts))
            for setting, pattern in patterns.items():
                # Equal noise after every prompt would make them fewer than they seem.
                task = replace(pattern, prompt=ids, seed=(pattern.seed + number) % 2**64)
                outcomes[setting][name] = session.own.run(task)
        return AcceptReport(
            **session.close(is_timed=False),
            depth=settings.depth,
            max_tokens=settings.max_tokens,
            sampling=settings.sampling,
            confidence=CONFIDENCE,
            prompt_tokens={name: len(ids) for name, ids in prompts.items()},
            rows=to_rows(outcomes),
        )


def _patterns(settings: AcceptSettings, options: Options) -> dict[str, DecodeTask]:
    greedy = DecodeTask(
        [], settings.max_tokens, settings.depth, prefill_chunk=options.prefill_chunk
    )
    sampling = settings.sampling.model_dump()
    return {GREEDY: greedy, **{law: replace(greedy, acceptance=law, **sampling) for law in LAWS}}


def to_rows(outcomes: Mapping[str, Mapping[str, Outcome]]) -> tuple[AcceptRow, ...]:
    """A row for each setting and domain, and for each setting over all; `outcomes` by setting and prompt."""
    rows = []
    for setting, found in outcomes.items():
        base = outcomes[COUPLED] if setting not in (GREEDY, COUPLED) else None
        for domain in (ALL, *dict.fromkeys(map(domain_of, found))):
            names = [name for name in found if domain in (ALL, domain_of(name))]
            own = [found[name] for name in names]
            rows.append(
                _row(setting, domain, own, None if base is None else [base[n] for n in names])
            )
    return tuple(rows)


def _row(
    setting: str, domain: str, runs: Sequence[Outcome], base: Sequence[Outcome] | None
) -> AcceptRow:
    tokens, rounds = sum(len(run.tokens) - 1 for run in runs), sum(run.rounds for run in runs)
    over = None
    if base is not None and len(runs) >= least_pairs(CONFIDENCE):
        over = Interval.of_ratio(_per_round(runs), _per_round(base))
    return AcceptRow(
        setting=setting,
        domain=domain,
        prompts=len(runs),
        rounds=rounds,
        tokens=tokens,
        tokens_per_round=tokens / rounds,
        drafted=tuple(sum_columns(run.drafted_by_depth for run in runs)),
        accepted=tuple(sum_columns(run.accepted_by_depth for run in runs)),
        acceptance=tuple(acceptance(runs)),
        over_coupled=over,
    )


def _per_round(runs: Sequence[Outcome]) -> list[float]:
    return [(len(run.tokens) - 1) / run.rounds for run in runs]
