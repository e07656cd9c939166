"""Runs a conversion in a fresh process and prints what it took, as JSON.

Usage: python -m tests.support.memory_probe SOURCE OUT RECIPE_JSON
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import mlx.core as mx
import psutil

from mtplx.forge.convert.head import convert_head
from mtplx.forge.recipe import Recipe
from tests.support.forged import inspected, write_trunk

_INTERVAL_S = 0.005


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


def _measure(source: Path, out: Path, recipe: Recipe) -> dict[str, Any]:
    inspection = inspected(source)
    resident = _Resident()
    mx.reset_peak_memory()
    write_trunk(source, out, recipe)
    trunk = mx.get_peak_memory()
    mx.reset_peak_memory()
    convert_head(source, inspection, recipe, out, allow_degraded_mtp=False)
    return {"trunk": trunk, "head": mx.get_peak_memory(), "resident": resident.grown()}


if __name__ == "__main__":
    found = _measure(Path(sys.argv[1]), Path(sys.argv[2]), Recipe.model_validate_json(sys.argv[3]))
    print(json.dumps(found))
