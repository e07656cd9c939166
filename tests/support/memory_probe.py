"""Runs a conversion in a fresh process and prints the memory that it took, as JSON.

Usage: python -m tests.support.memory_probe SOURCE OUT RECIPE_JSON [hoard]

`hoard` reads the whole trunk first and keeps it, as a converter would that does not work shard by shard.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import mlx.core as mx
import psutil

from mtplx.forge.convert.published import read, trunk_names
from mtplx.forge.convert.side_files import copy_side_files
from mtplx.forge.recipe import Recipe
from tests.support.forged import inspected, write_head, write_trunk

_INTERVAL_S = 0.002


class _Resident:
    """The most anonymous memory the process had, sampled: pages of mapped files do not count."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self.start = self.peak = self._now()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def grown(self) -> int:
        """Bytes above the start; ends the sampling."""
        self._stop.set()
        self._thread.join()
        return self.peak - self.start

    def _sample(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        found = self._process.memory_info()
        return int(found.rss - getattr(found, "shared", 0))


def _measure(source: Path, out: Path, recipe: Recipe, *, hoard: bool) -> dict[str, int]:
    """Peaks in bytes: of MLX's arrays, and of the growth of the process."""
    inspection = inspected(source)
    resident = _Resident()
    mx.reset_peak_memory()
    kept = read(inspection, trunk_names(inspection)) if hoard else {}
    mx.eval(kept)
    write_trunk(source, out, recipe)
    write_head(source, out, recipe)
    copy_side_files(source, inspection, recipe, out)
    return {"arrays": mx.get_peak_memory(), "resident": resident.grown()}


if __name__ == "__main__":
    _found = _measure(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        Recipe.model_validate_json(sys.argv[3]),
        hoard=sys.argv[4:] == ["hoard"],
    )
    print(json.dumps(_found))
