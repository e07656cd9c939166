"""A progress line for long loads and prefills."""

import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

# Work that ends within the first delay shows nothing; a log file gets a line now and then only.
TERMINAL_DELAY_S = 0.5
PLAIN_INTERVAL_S = 5.0


class Progress:
    """Shows a bar on a terminal, one line every few seconds elsewhere."""

    def __init__(self, stream: TextIO, *, shown: bool, is_rich: bool) -> None:
        self._stream = stream
        self._shown = shown
        self._is_rich = is_rich
        self._next_s = time.monotonic() + (TERMINAL_DELAY_S if is_rich else PLAIN_INTERVAL_S)
        self._bar: Bar | None = None

    def update(self, label: str, fraction: float) -> None:
        """Report that `fraction` (0 to 1) of the work called `label` is done."""
        if not self._shown or time.monotonic() < self._next_s:
            return
        if self._is_rich:
            self._draw(label, fraction)
        else:
            self._stream.write(f"{label}: {fraction:.0%}\n")
            self._stream.flush()
            self._next_s = time.monotonic() + PLAIN_INTERVAL_S

    def prefill(self, done: int, total: int) -> None:
        """Report that `done` of `total` prompt tokens have been read."""
        self.update(f"reading {total} prompt tokens", done / max(total, 1))

    def close(self) -> None:
        """Take the bar off the terminal; nothing is shown from here on."""
        self._shown = False
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, label: str, fraction: float) -> None:
        if self._bar is None:
            self._bar = _make_bar(self._stream)
            self._bar.add_task(label, total=1.0)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], description=label, completed=fraction)
        self._bar.refresh()


def _make_bar(stream: TextIO) -> "Bar":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        console=Console(file=stream),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
