"""Showing an answer while it is being made, and stopping it with Ctrl-C."""

import signal
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from mtplx.progress import Progress
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.runtime.decode.result import Event, Generation


def show_answer(
    events: Iterator["Event"], screen: Screen, progress: Progress
) -> "Generation | None":
    """Write the text of `events` as it comes, ended by a line break, and return the generation."""
    generation, last_text = None, ""
    for event in events:
        progress.close()
        if event.text:
            screen.write(event.text)
            last_text = event.text
        generation = event.generation
    if not last_text.endswith("\n"):
        screen.write("\n")
    return generation


class StopRequest:
    """Makes the first Ctrl-C of its block a call of `request`, and the second KeyboardInterrupt.

    An exception in the middle of a round leaves caches torn; a request is honoured between rounds.
    """

    def __init__(self, request: Callable[[], None]) -> None:
        self._request = request
        self.made = False

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a stop was requested."""
        if self.made:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.check()
        self.made = True
        self._request()
