"""Exactness: decoding with MTP against plain decoding, token by token."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from mtplx.forge.verify.prompts import EncodedPrompt
from mtplx.forge.verify.settings import VerifySettings
from mtplx.forge.verify.ties import Gap, first_difference, judge
from mtplx.runtime.model import Model

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Parting:
    """A place where MTP chose another token than plain decoding.

    `how` says which decoding it was, `position` counts the tokens of the answer from 0; `found` is None where the
    answer ended too early. `gap`, `tolerance` and `reading`: see `ties.Gap`.
    """

    prompt: str
    how: str
    position: int
    expected: int
    found: int | None
    gap: float | None
    tolerance: float
    reading: str

    def __str__(self) -> str:
        gap = "no probability" if self.gap is None else f"a gap of {self.gap:.3g}"
        return (
            f"prompt {self.prompt}, {self.how}: token {self.position} is {self.found}, plain decoding gives "
            f"{self.expected} ({gap}, a tie has {self.tolerance:.2g} at most)"
        )


class DraftCount(NamedTuple):
    """Drafts made at position `depth` by the runs of that depth, and those of them that stayed."""

    depth: int
    drafted: int
    accepted: int


class Comparison(NamedTuple):
    """One answer against plain decoding's: tokens compared, ties met, and the difference that ended it."""

    tokens: int
    ties: tuple[Parting, ...]
    difference: Parting | None
    drafts: DraftCount


@dataclass(frozen=True, slots=True)
class ExactnessResult:
    """All comparisons; `plain_sha256` is of every answer of plain decoding, for a replay to recognise them.

    `drafts` has one entry a depth: equality tells nothing of a depth at which nothing was drafted.
    """

    tokens: int
    differences: tuple[Parting, ...]
    ties: tuple[Parting, ...]
    drafts: tuple[DraftCount, ...]
    plain_sha256: str

    @property
    def passed(self) -> bool:
        """Whether drafts of every depth were tested and nothing differed."""
        is_tested = self.tokens > 0 and all(count.drafted > 0 for count in self.drafts)
        return is_tested and not self.differences

    def to_json(self) -> dict[str, Any]:
        """Counts, and every place where answers parted."""
        return {
            "passed": self.passed,
            "tokens": self.tokens,
            "differences": [asdict(parting) for parting in self.differences],
            "ties": [asdict(parting) for parting in self.ties],
            "drafts": [count._asdict() for count in self.drafts],
            "plain_sha256": self.plain_sha256,
        }


class _Case(NamedTuple):
    """Plain options, and the options of the runs that must give the same, by name."""

    prompt: EncodedPrompt
    plain: dict[str, Any]
    runs: dict[str, dict[str, Any]]


def check_exactness(
    model: Model, prompts: Sequence[EncodedPrompt], settings: VerifySettings, on_progress: Progress
) -> ExactnessResult:
    """Compare greedy and seeded answers with MTP at every depth with those of plain decoding.

    Raises:
        NumericError: the model produced NaN or infinite logits.
    """
    found: list[Comparison] = []
    digest = hashlib.sha256()
    cases = list(_cases(prompts, settings))
    for done, case in enumerate(cases):
        on_progress(f"exactness on {case.prompt.name}", done / len(cases))
        answer = model.generate(
            case.prompt.ids, depth=0, max_tokens=settings.exact_tokens, **case.plain
        )
        digest.update(json.dumps(answer.token_ids).encode())
        found += [
            compare_answer(model, case.prompt, answer.token_ids, how, options)
            for how, options in case.runs.items()
        ]
    return ExactnessResult(
        tokens=sum(comparison.tokens for comparison in found),
        differences=tuple(c.difference for c in found if c.difference is not None),
        ties=tuple(tie for comparison in found for tie in comparison.ties),
        drafts=_sums(settings.depths, [comparison.drafts for comparison in found]),
        plain_sha256=digest.hexdigest(),
    )


def compare_answer(
    model: Model,
    prompt: EncodedPrompt,
    expected: Sequence[int],
    how: str,
    options: Mapping[str, Any],
) -> Comparison:
    """Decode with `options` and compare with `expected`, the answer of plain decoding.

    Behind a numeric tie the texts differ for good reason, so decoding begins again there, with the expected token
    taken as given: a tie costs no coverage. A difference ends the comparison.
    """
    depth = options["depth"]
    ties: list[Parting] = []
    start = drafted = accepted = 0
    while start < len(expected):
        given = [*prompt.ids, *expected[:start]]
        rest = expected[start:]
        answer = model.generate(given, max_tokens=len(rest), **options)
        drafted += answer.stats.drafted_by_depth[depth - 1]
        accepted += answer.stats.accepted_by_depth[depth - 1]
        index = first_difference(rest, answer.token_ids)
        if index is None:
            break
        found = answer.token_ids[index:]
        parting = part(model, prompt, expected, start + index, found, how, options)
        start += index + 1
        if not Gap(parting.gap, parting.tolerance, parting.reading).is_tie:
            return Comparison(start, tuple(ties), parting, DraftCount(depth, drafted, accepted))
        ties.append(parting)
    return Comparison(len(expected), tuple(ties), None, DraftCount(depth, drafted, accepted))


def part(
    model: Model,
    prompt: EncodedPrompt,
    expected: Sequence[int],
    position: int,
    found: Sequence[int],
    how: str,
    options: Mapping[str, Any],
) -> Parting:
    """Describe the place where `found` begins with another token than `expected[position]`."""
    gap, token = Gap(None, 0.0, "none"), None
    if found:
        token = found[0]
        gap = judge(model, prompt.ids, expected[:position], expected[position], token, options)
    return Parting(prompt.name, how, position, expected[position], token, *gap)


def _sums(depths: Sequence[int], counts: Sequence[DraftCount]) -> tuple[DraftCount, ...]:
    """The counts of each depth, added up."""
    groups = [[count for count in counts if count.depth == depth] for depth in depths]
    return tuple(
        DraftCount(depth, sum(c.drafted for c in group), sum(c.accepted for c in group))
        for depth, group in zip(depths, groups, strict=True)
    )


def _cases(prompts: Sequence[EncodedPrompt], settings: VerifySettings) -> Iterator[_Case]:
    """Greedy and seeded runs of every prompt at every depth; over the prompts each depth meets each chunk size."""
    greedy, chunks = settings.greedy, settings.chunk_sizes
    for number, prompt in enumerate(prompts):
        runs = {}
        for place, depth in enumerate(settings.depths):
            chunk = chunks[(number + place) % len(chunks)]
            options = {**greedy, "depth": depth, "prefill_chunk": chunk}
            runs[f"greedy, depth {depth}, chunk {chunk}"] = options
        yield _Case(prompt, greedy, runs)
        for seed in settings.seeds:
            sampled = settings.sampled(seed)
            runs = {
                f"seed {seed}, depth {depth}": {**sampled, "depth": depth}
                for depth in settings.depths
            }
            yield _Case(prompt, sampled, runs)
