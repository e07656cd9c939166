"""Where the output of a command goes: answers to standard output, all else to standard error."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from mtplx.progress import Progress
from mtplx.render import Row, emphasise, is_rich, print_table


class Screen:
    """The two streams of one command; a quiet screen shows answers and errors only."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    def write(self, text: str) -> None:
        """Show a piece of an answer at once; a reader that has gone ends the command quietly."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes again at exit and must not meet the closed pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)

    def write_json(self, value: Mapping[str, object]) -> None:
        """Show one JSON object on one line."""
        self.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")

    def note(self, text: str) -> None:
        """Tell what was decided on the user's behalf."""
        if not self.quiet:
            emphasise(sys.stderr, "note:", text, style="dim")

    def warn(self, text: str) -> None:
        """Tell what may surprise the user."""
        if not self.quiet:
            emphasise(sys.stderr, "warning:", text, style="yellow")

    def table(self, title: str, rows: list[Row], stream: TextIO | None = None) -> None:
        """Show a table, on standard error unless it is what was asked for."""
        print_table(stream or sys.stderr, title, rows)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A progress line that is gone again when the block ends."""
        progress = Progress(sys.stderr, shown=not self.quiet, is_rich=is_rich(sys.stderr))
        try:
            yield progress
        finally:
            progress.close()
