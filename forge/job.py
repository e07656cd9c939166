"""One build as a value: what is wanted, and where it happens."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtplx.forge.plan import Plan
from mtplx.forge.recipe import Recipe
from mtplx.forge.request import BuildRequest
from mtplx.forge.run_folder import RunFolder
from mtplx.forge.source import Source

# Told: the phase, what it is doing, and how much of the phase is done (0 to 1).
Report = Callable[[str, str, float], None]


@dataclass(frozen=True, slots=True)
class BuildJob:
    """A planned build. The artifact grows in `run.artifact` and ends as `target`."""

    run: RunFolder
    source: Source
    recipe: Recipe
    plan: Plan
    request: BuildRequest
    target: Path
    calibration_text: Path | None

    @property
    def is_branded(self) -> bool:
        """Whether only the final rename, or not even that, is left to do."""
        return self.run.result("brand") is not None
