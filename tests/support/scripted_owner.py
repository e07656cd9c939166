"""The real owner on a script instead of a model: bursts of tokens, pauses and errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.decode.result import Event, Generation
from mtplx.runtime.decode.stats import Stats
from mtplx.runtime.decode.stop import Answer
from mtplx.runtime.decode.text import TextStream
from mtplx.runtime.sampling.logprobs import TokenLogprob, TokenLogprobs
from mtplx.runtime.scheduler.job import Job
from mtplx.runtime.scheduler.lanes import make_lane
from mtplx.runtime.scheduler.modes import SchedulerMode
from mtplx.runtime.scheduler.owner import Owner
from tests.support.scripted import END_IDS, ScriptedTokenizer, byte_tokens

#: Text, token ids, seconds that a step takes, something called as a step, or what a step fails with.
Burst = str | Iterable[int] | float | Callable[[], object] | BaseException

#: What the model answers to a job; an answer that does not end by itself ends with an end token.
Script = Callable[[Job], Iterable[Burst]]

LOGPROB = -0.25


class ScriptedBackend:
    """Answers jobs with a script, under the rules of a real answer: end tokens, stop strings, `max_tokens`.

    A burst counts as one round that drafted all its tokens but one and had them accepted. The prompt takes
    `prefill_steps` steps of `prefill_step_s` each. `jobs` are those that have been run; `refusal` is what `check`
    raises.
    """

    def __init__(
        self,
        script: Script,
        *,
        prefill_steps: int = 1,
        prefill_step_s: float = 0.0,
        refusal: Exception | None = None,
    ) -> None:
        self.jobs: list[Job] = []
        self.refusal = refusal
        self.tokenizer = ScriptedTokenizer()
        self._script = script
        self._prefill_steps = prefill_steps
        self._prefill_step_s = prefill_step_s

    def check(self, job: Job) -> None:  # noqa: ARG002
        """Raise `refusal` if there is one."""
        if self.refusal is not None:
            raise self.refusal

    def run(
        self, job: Job, is_interrupted: Callable[[], bool], on_prefill: Callable[[int, int], None]
    ) -> Iterator[Event]:
        """Play the script; control is given back between bursts, as between rounds."""
        self.jobs.append(job)
        answer = Answer(
            TextStream(self.tokenizer),
            max_tokens=job.options.max_tokens,
            end_tokens=frozenset(END_IDS),
            stops=job.options.stop,
        )
        stats = Stats(prompt_tokens=len(job.prompt))
        if not self._read(job, is_interrupted, on_prefill):
            answer.interrupt()
        bursts = iter(self._script(job))
        is_told = False
        while not _has_ended(answer):
            if is_interrupted():
                answer.interrupt()
                break
            burst = next(bursts, END_IDS[:1])
            if isinstance(burst, BaseException):
                raise burst
            if isinstance(burst, float):
                time.sleep(burst)
            elif callable(burst):
                burst()
            else:
                tokens = byte_tokens(burst) if isinstance(burst, str) else list(burst)
                kept = answer.keep(tokens)
                drafts = min(len(tokens) - 1, MAX_DEPTH)
                stats.record_round(drafts, min(kept - 1, drafts), 0.0)
                is_told = _has_ended(answer)
                yield self._event(job, answer, stats, tokens[:kept])
        if not is_told:
            yield self._event(job, answer, stats, [])

    def stats(self) -> dict[str, Any]:
        """What a model's backend tells, in small."""
        return {
            "memory": {"active_bytes": 5, "peak_bytes": 6, "cache_capacity_bytes": 7},
            "prefix_cache": {
                "entries": 1,
                "bytes": 8,
                "max_bytes": 9,
                "hits": 2,
                "misses": {"new_session": 3},
                "evictions": 0,
            },
        }

    def _read(
        self, job: Job, is_interrupted: Callable[[], bool], on_prefill: Callable[[int, int], None]
    ) -> bool:
        total = len(job.prompt)
        for step in range(1, self._prefill_steps + 1):
            if is_interrupted():
                return False
            if self._prefill_step_s:
                time.sleep(self._prefill_step_s)
            on_prefill(total * step // self._prefill_steps, total)
        return True

    def _event(self, job: Job, answer: Answer, stats: Stats, tokens: list[int]) -> Event:
        stats.completion_tokens = len(answer.tokens)
        top = job.options.logprobs
        logprobs = () if top is None else tuple(_logprobs(token, top) for token in tokens)
        reason = answer.finish_reason
        generation = None if reason is None else _generation(job, answer, stats)
        return Event(answer.new_text(), tuple(tokens), reason, generation, logprobs)


def scripted_owner(
    script: Script | ScriptedBackend,
    *,
    mode: SchedulerMode = SchedulerMode.SERIAL,
    queue_size: int = 16,
    max_queued_tokens: int = 2_000_000,
    watchdog_s: float = 120.0,
) -> Owner:
    """A started owner that answers with `script`; stop it when done."""
    backend = script if isinstance(script, ScriptedBackend) else ScriptedBackend(script)
    owner = Owner(
        lambda: backend,
        make_lane(mode, queue_size),
        max_queued_tokens=max_queued_tokens,
        watchdog_s=watchdog_s,
    )
    owner.start()
    owner.wait_loaded()
    return owner


def in_bursts(text: str, width: int) -> list[list[int]]:
    """`text` as rounds of `width` tokens, which may split characters."""
    ids = byte_tokens(text)
    return [ids[start : start + width] for start in range(0, len(ids), width)]


def _has_ended(answer: Answer) -> bool:
    return answer.finish_reason is not None


def _logprobs(token: int, top: int) -> TokenLogprobs:
    likeliest = [TokenLogprob((token + i) % 256, LOGPROB - i) for i in range(top)]
    return TokenLogprobs(token, LOGPROB, tuple(likeliest))


def _generation(job: Job, answer: Answer, stats: Stats) -> Generation:
    return Generation(
        text=answer.text,
        prompt_token_ids=tuple(job.prompt),
        token_ids=tuple(answer.tokens),
        finish_reason=answer.finish_reason or "interrupted",
        seed=job.options.seed or 0,
        model="scripted",
        tier="verified",
        generation_mode="mtp" if job.options.mtp else "ar",
        depth=job.options.depth,
        acceptance=job.options.acceptance,
        stats=stats,
        warnings=(),
        stop_sequence=answer.stop_sequence,
    )
