"""Decoding plainly and at every depth in turns, one prompt a round, until the figures decide or the time is up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from mtplx.contracts.errors import InvalidRequestError
from mtplx.runtime.tuning.compare import JobRunner, System, acceptance
from mtplx.runtime.tuning.job import Job, Outcome
from mtplx.runtime.tuning.paired import paired_gain
from mtplx.runtime.tuning.record import Depth, DepthRow, Spread, depth_name
from mtplx.runtime.tuning.rule import (
    SCREEN_ROUNDS,
    Judgement,
    Speeds,
    clearly_slower,
    judge,
    least_rounds,
    next_look,
    slowest_first,
)
from mtplx.runtime.tuning.statistics import CONFIDENCE

# The first pass compiles every shape of a round, the second one tells how long things take.
_WARM_UP_PASSES = 2
_WARM_UP_TOKENS = 16
# Many short answers tell more of texts than a few long ones, and all sessions shall measure the same.
_TOKENS = 32
# Ending the process and writing the result take a moment too.
_RESERVE_SHARE = 0.05
# How far seconds to come may be from measured ones, either way.
_ESTIMATE_ERROR = 0.2

OnRound = Callable[["Measurement"], None]


@dataclass(slots=True)
class Measurement:
    """All ways of decoding and what is known of them; `run` fills it.

    `prompts` are lists of prompts (token ids) by domain; each round takes the next domain, and of it the next prompt.
    `clock` gives seconds; `budget_s` begins at `started`, and a job that would end later is not begun. `on_change` is
    called after every job. Depths that are measured no more are not in `live`; those for which there was no time are in
    `left_out`.
    """

    worker: JobRunner
    prompts: Mapping[str, Sequence[Sequence[int]]]
    depths: Sequence[Depth]
    clock: Callable[[], float]
    started: float
    budget_s: float
    on_change: OnRound = lambda _measurement: None
    systems: dict[Depth, System] = field(init=False)
    live: list[Depth] = field(init=False)
    left_out: list[Depth] = field(init=False, default_factory=list)
    tokens: int = field(init=False, default=_TOKENS)
    rounds: int = field(init=False, default=0)
    label: str = field(init=False, default="")
    judgement: Judgement | None = field(init=False, default=None)
    _speeds: Speeds = field(init=False)
    _tok_s: dict[Depth, list[float]] = field(init=False)
    _is_warm: bool = field(init=False, default=False)
    _looks: int = field(init=False, default=0)
    _judged_rounds: int = field(init=False, default=0)
    _seconds: dict[tuple[Depth, str], float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.live = list(self.depths)
        self.systems = {
            depth: System(depth_name(depth), self.worker, None if depth == "auto" else depth)
            for depth in (0, *self.depths)
        }
        self._tok_s = {depth: [] for depth in self.systems}
        self._speeds = Speeds(self._tok_s, domains=len(self.prompts))

    @property
    def deadline(self) -> float:
        """When the last job has to be done, on the clock."""
        return self.started + self.budget_s * (1.0 - _RESERVE_SHARE)

    @property
    def fraction(self) -> float:
        """The share of the time that is used up."""
        return min(1.0, (self.clock() - self.started) / self.budget_s)

    @property
    def rounds_needed(self) -> int:
        """Rounds without which no depth can win; every domain has one."""
        return max(least_rounds(len(self.depths), 1), len(self.prompts))

    def run(self) -> Judgement:
        """Measure until every depth is told apart from the best, or the time is up, and judge.

        Raises:
            InvalidRequestError: the time does not suffice for the fewest rounds.
        """
        self._warm_up()
        look_at = self.rounds_needed
        while not self._is_decided() and self._can_suffice() and self._round():
            self._drop(clearly_slower(self._speeds, self.live))
            self._fit_time()
            if self.rounds >= look_at:
                self._look()
                look_at = next_look(self.rounds, len(self.depths), self._looks + 1)
        if self.live and self.rounds < self.rounds_needed:
            raise self._too_short()
        if self.judgement is None or self.rounds > self._judged_rounds:
            self._look()
        assert self.judgement is not None, "a look leaves its judgement"
        return self.judgement

    def rows(self) -> list[DepthRow]:
        """What is known by now, plain decoding first; nothing before the first round has ended."""
        if not self.rounds:
            return []
        return [self._row(depth) for depth in self.systems]

    def _row(self, depth: Depth) -> DepthRow:
        system, own = self.systems[depth], self._tok_s[depth]
        tok_s = paired_gain(own, [1.0] * len(own), domains=len(self.prompts), confidence=CONFIDENCE)
        over = self._speeds.over(depth, 0) if depth != 0 else None
        by_domain = {name: tuple(acceptance(runs)) for name, runs in system.outcomes.items()}
        return DepthRow(
            depth=depth,
            rounds=len(own),
            tok_s=Spread.of(tok_s),
            gain=None if over is None else Spread.of(over),
            acceptance=tuple(acceptance(list(chain(*system.outcomes.values())))),
            acceptance_by_domain=by_domain,
            was_dropped=depth != 0 and depth not in self.live,
            text_equals_plain=self._equals_plain(system),
        )

    def _warm_up(self) -> None:
        """Compile, and see how long a round will take."""
        last: dict[Depth, Outcome] = {}
        for number in range(_WARM_UP_PASSES):
            found = self._decode_all(*self._prompt(number), _WARM_UP_TOKENS)
            if found is None:
                raise self._too_short()
            last = found
        self._seconds = {
            (depth, domain): outcome.ttft_s + self.tokens / outcome.decode_tok_s
            for depth, outcome in last.items()
            for domain in self.prompts
        }
        self._is_warm = True

    def _round(self) -> bool:
        """One more round of plain decoding and all live depths; False when there is no time for it."""
        domain, prompt = self._prompt(self.rounds)
        if self.clock() + sum(map(self._round_seconds, (0, *self.live))) > self.deadline:
            return False
        outcomes = self._decode_all(domain, prompt, self.tokens)
        if outcomes is None:
            return False
        for depth, outcome in outcomes.items():
            self.systems[depth].outcomes.setdefault(domain, []).append(outcome)
            self._tok_s[depth].append(outcome.decode_tok_s)
        self.rounds += 1
        return True

    def _prompt(self, number: int) -> tuple[str, Sequence[int]]:
        """Domain and prompt of a round; when all have been used they come again."""
        turn, place = divmod(number, len(self.prompts))
        domain = list(self.prompts)[place]
        own = self.prompts[domain]
        return domain, own[turn % len(own)]

    def _decode_all(
        self, domain: str, prompt: Sequence[int], tokens: int
    ) -> dict[Depth, Outcome] | None:
        """Every way of decoding once, in turns; None when the time does not suffice."""
        outcomes = {}
        for depth in (0, *self.live):
            start = self.clock()
            # What was never measured takes as long as the longest yet.
            longest = max(self._seconds.values(), default=0.0)
            if start + self._seconds.get((depth, domain), longest) > self.deadline:
                return None
            self.label = f"{depth_name(depth)} on {domain}"
            job = Job(list(prompt), tokens, self.systems[depth].depth)
            outcomes[depth] = self.worker.run(job)
            self._seconds[depth, domain] = self.clock() - start
            self.on_change(self)
        return outcomes

    def _round_seconds(self, depth: Depth) -> float:
        """How long one way of decoding takes in a round, on average."""
        return sum(self._seconds[depth, domain] for domain in self.prompts) / len(self.prompts)

    def _can_suffice(self) -> bool:
        """Whether the fewest rounds fit into the time, if need be of one depth."""
        missing = self.rounds_needed - self.rounds
        if missing <= 0:
            return True
        with_all = max(0, SCREEN_ROUNDS - self.rounds)
        each = {depth: self._round_seconds(depth) for depth in (0, *self.live)}
        quickest = min(each[depth] for depth in self.live)
        least = with_all * sum(each.values()) + (missing - with_all) * (each[0] + quickest)
        return self.clock() + (1.0 - _ESTIMATE_ERROR) * least <= self.deadline

    def _fit_time(self) -> None:
        """Leave out the slowest depths where the time does not hold the fewest rounds of all."""
        missing = self.rounds_needed - self.rounds
        if missing <= 0 or self.rounds < SCREEN_ROUNDS:
            return
        room = (1.0 - _ESTIMATE_ERROR) * (self.deadline - self.clock()) / missing
        kept = slowest_first(self._speeds, self.live)
        while len(kept) > 1 and sum(map(self._round_seconds, (0, *kept))) > room:
            self.left_out.append(kept.pop(0))
        self._drop(frozenset(self.left_out))

    def _look(self) -> None:
        self._looks += 1
        self.judgement = judge(
            self._speeds,
            self.live,
            comparisons=len(self.depths),
            look=self._looks,
            proven=() if self.judgement is None else self.judgement.proven,
        )
        self._judged_rounds = self.rounds
        self._drop(self.judgement.hopeless)

    def _drop(self, depths: frozenset[Depth]) -> None:
        self.live = [depth for depth in self.live if depth not in depths]

    def _is_decided(self) -> bool:
        """Whether nothing is left to be told; with all depths dropped, plain decoding has won."""
        return not self.live or (self.judgement is not None and self.judgement.is_decided)

    def _equals_plain(self, system: System) -> bool:
        plain = self.systems[0].outcomes
        return all(
            run.tokens == plain_run.tokens
            for domain, runs in system.outcomes.items()
            for run, plain_run in zip(runs, plain[domain], strict=False)
        )

    def _too_short(self) -> InvalidRequestError:
        return InvalidRequestError(
            f"{self.budget_s:.0f} s do not suffice: comparing takes {self.rounds_needed} rounds or "
            f"more, {self.rounds} were measured after {self.clock() - self.started:.0f} s; nothing "
            "is saved.",
            key="budget",
            hint=f"Give a larger budget (--budget {self._sufficient_s():.0f}s) or fewer --depths.",
        )

    def _sufficient_s(self) -> float:
        """A budget that suffices, as far as can be told, in tens of seconds."""
        spent = self.clock() - self.started
        wanted = 2.0 * max(self.budget_s, spent)
        if self._is_warm:
            one_round = sum(map(self._round_seconds, self.systems))
            wanted = spent + one_round * self.rounds_needed
            wanted *= 1.0 + 2.0 * _RESERVE_SHARE
        return max(10.0 * math.ceil(wanted / 10.0), self.budget_s + 10.0)
