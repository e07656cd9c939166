"""Paired speed comparison: plain, MTP by depth and stock mlx-lm, in turns on the same prompts."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, Protocol

import psutil

from mtplx.contracts.errors import BackendError
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.runtime.loading.tokenizer import encode, load_tokenizer, render_chat
from mtplx.runtime.tuning.job import Job, Outcome
from mtplx.runtime.tuning.prompts import PROMPTS
from mtplx.runtime.tuning.worker import OWN, STOCK, Worker

Depth = int | Literal["auto"]
PLAIN = "plain"
STOCK_NAME = "mlx-lm"
# Enough for every shape of a round to be compiled.
_WARM_UP_TOKENS = 16


class JobRunner(Protocol):
    """What decodes: a `Worker`, as far as measuring needs it."""

    def run(self, job: Job) -> Outcome:
        """Decode once."""


@dataclass(slots=True)
class System:
    """One way of decoding, and what it did: `outcomes[domain]` has one entry a repeat."""

    name: str
    worker: JobRunner
    depth: int | None
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)

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


def compare_speed(
    folder: Path,
    *,
    depths: Sequence[Depth],
    with_stock: bool,
    repeats: int,
    max_tokens: int,
    on_progress: Callable[[str, float], None] = lambda _label, _fraction: None,
) -> dict[str, Any]:
    """Decode greedily with every system in turns, `repeats` times after a warm-up, and report all rows.

    Each system runs in a process of its own kind, one at a time: A B C, A B C, ... This process reads the
    tokenizer only. Depths are left out where the model has no head that can be run.

    Raises:
        MTPLXError: the folder can't be run, or has no tokenizer or chat template.
    """
    inspection = inspect_folder(folder)
    inspection.raise_if_unrunnable()
    prompts = _encode_prompts(inspection)
    depths = depths if inspection.can_use_head else ()
    with ExitStack() as stack:
        own = stack.enter_context(Worker(OWN, folder))
        systems = [System(PLAIN, own, 0)]
        systems += [System(f"mtp-{d}", own, None if d == "auto" else d) for d in depths]
        refusal = None
        if with_stock:
            try:
                stock = stack.enter_context(Worker(STOCK, folder))
                stock.run(Job([1, 2, 3], 4))
                systems.append(System(STOCK_NAME, stock, 0))
            except BackendError as error:
                refusal = error.message
        measure(systems, prompts, repeats, max_tokens, on_progress)
        return {
            "conditions": _conditions(folder, own, repeats, max_tokens, prompts),
            "systems": _rows(systems),
            "refused": {STOCK_NAME: refusal} if refusal else {},
        }


def acceptance(outcomes: Sequence[Outcome]) -> list[float]:
    """Share of the drafts of each depth that was accepted, over all `outcomes`."""
    drafted = _sums(outcome.drafted_by_depth for outcome in outcomes)
    accepted = _sums(outcome.accepted_by_depth for outcome in outcomes)
    return [kept / tried for tried, kept in zip(drafted, accepted, strict=True) if tried]


def _sums(counts: Iterable[list[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*counts, fillvalue=0)]


def _encode_prompts(inspection: Inspection) -> dict[str, list[int]]:
    tokenizer = load_tokenizer(inspection.path, inspection.eos_token_ids)
    return {
        prompt.domain: encode(tokenizer, prompt.text)
        if prompt.raw
        else render_chat(tokenizer, [{"role": "user", "content": prompt.text}], inspection.path)
        for prompt in PROMPTS
    }


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
        for domain, prompt in prompts.items():
            for system in systems:
                outcome = system.worker.run(Job(list(prompt), tokens, system.depth))
                if is_warm:
                    system.outcomes.setdefault(domain, []).append(outcome)
                done += 1
                on_progress(f"{system.name} on {domain}", done / total)


def _rows(systems: list[System]) -> list[dict[str, Any]]:
    plain = systems[0]
    stock = next((s for s in systems if s.name == STOCK_NAME), None)
    return [
        {
            "name": system.name,
            "decode_tok_s": _spread(system.speeds()),
            "over_plain": _ratios(system, plain),
            "over_mlx_lm": None if stock is None else _ratios(system, stock),
            "ttft_s": statistics.median(
                o.ttft_s for runs in system.outcomes.values() for o in runs
            ),
            "text_equals_plain": {
                domain: all(o.tokens == plain.outcomes[domain][0].tokens for o in runs)
                for domain, runs in system.outcomes.items()
            },
            "acceptance_by_depth": system.acceptance_by_domain(),
            "tok_s_by_domain": {
                domain: statistics.median(o.decode_tok_s for o in runs)
                for domain, runs in system.outcomes.items()
            },
        }
        for system in systems
    ]


def _ratios(system: System, base: System) -> dict[str, float]:
    """Speed over `base`, repeat by repeat, so that drift of the machine cancels."""
    pairs = zip(system.speeds(), base.speeds(), strict=True)
    return _spread([own / other for own, other in pairs])


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def _conditions(
    folder: Path, own: Worker, repeats: int, max_tokens: int, prompts: dict[str, list[int]]
) -> dict[str, Any]:
    return {
        "model": folder.resolve().name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "versions": {name: version(name) for name in ("mlx", "mlx-lm", "mtplx")},
        "own": own.about,
        "repeats": repeats,
        "max_tokens": max_tokens,
        "prompt_tokens": {domain: len(ids) for domain, ids in prompts.items()},
        "sampling": "greedy, end tokens ignored",
    }
