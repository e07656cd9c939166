"""What the owner's thread runs jobs on: a model with its bank of prefixes, or a script in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from mtplx.runtime.decode.result import Event
from mtplx.runtime.scheduler.job import Job


class Backend(Protocol):
    """Decodes one job at a time. Lives on one thread; only `check` is called from others."""

    def check(self, job: Job) -> None:
        """Raise what can be known to be wrong with `job` before it is queued, quickly.

        Raises:
            PromptTooLongError: the prompt leaves no room in the context.
            InvalidRequestError: an option does not suit the model.
            HeadMissingError: a depth was asked for and there is no head.
            ResourceError: prompt and answer could never fit this machine's memory.
        """

    def run(
        self, job: Job, is_interrupted: Callable[[], bool], on_prefill: Callable[[int, int], None]
    ) -> Iterator[Event]:
        """Decode; the last event carries the Generation. Closing it early must leave the backend usable.

        `is_interrupted` is asked before every step and every chunk of the prompt.
        """

    def stats(self) -> dict[str, Any]:
        """Figures for the server's statistics; JSON-serialisable. May be called from any thread."""
