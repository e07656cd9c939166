"""An engine that costs nothing: it plays back an answer whose text was made before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from mtplx.runtime.decode.result import Event, Generation
from mtplx.runtime.decode.stats import Stats
from mtplx.runtime.decode.text import Decoder, TextStream
from mtplx.runtime.scheduler.job import Job

_NAME: Final = "playback"


class Played(NamedTuple):
    """One token of an answer and the text it adds."""

    token: int
    text: str


def play(tokenizer: Decoder, tokens: Sequence[int]) -> tuple[Played, ...]:
    """`tokens` with the text that each of them completes."""
    stream = TextStream(tokenizer)
    return tuple(Played(token, stream.add(token)) for token in tokens)


class PlaybackBackend:
    """Answers every job with the same tokens, again and again up to its `max_tokens`, `burst` of them a round.

    `read_at` has for each job when its prompt had been read, in seconds of the monotonic clock.
    """

    def __init__(self, answer: Sequence[Played], burst: int) -> None:
        self.read_at: dict[str, float] = {}
        self._answer = answer
        self._burst = burst

    def check(self, job: Job) -> None:
        """Every job can be run."""

    def run(
        self, job: Job, is_interrupted: Callable[[], bool], on_prefill: Callable[[int, int], None]
    ) -> Iterator[Event]:
        """Play the answer; nothing is computed."""
        total, wanted = len(job.prompt), job.options.max_tokens
        on_prefill(total, total)
        self.read_at[job.id] = time.monotonic()
        answer, size = self._answer, len(self._answer)
        for start in range(0, wanted, self._burst):
            stop = min(start + self._burst, wanted)
            played = [answer[at % size] for at in range(start, stop)]
            text = "".join(one.text for one in played)
            ids = tuple(one.token for one in played)
            if is_interrupted():
                yield self._last(job, "", (), start, "interrupted")
                return
            if stop == wanted:
                yield self._last(job, text, ids, stop, "length")
                return
            yield Event(text, ids)

    def stats(self) -> dict[str, Any]:
        """There are no figures."""
        return {}

    def _last(self, job: Job, text: str, ids: tuple[int, ...], count: int, reason: str) -> Event:
        stats = Stats(prompt_tokens=len(job.prompt), completion_tokens=count)
        generation = Generation(
            text="",
            prompt_token_ids=tuple(job.prompt),
            token_ids=(),
            finish_reason=reason,
            seed=0,
            model=_NAME,
            tier=_NAME,
            generation_mode="ar",
            depth=0,
            acceptance="coupled",
            stats=stats,
            warnings=(),
        )
        return Event(text, ids, reason, generation)
