"""Verifying an artifact: is it exact, and is it faster?"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mtplx.contracts.errors import HeadMissingError
from mtplx.contracts.inspection import inspect_folder
from mtplx.forge.verify.evidence import machine, speed_evidence, tested_on, timestamp
from mtplx.forge.verify.exactness import ExactnessResult, check_exactness
from mtplx.forge.verify.law import LawResult, Make, check_laws
from mtplx.forge.verify.prompts import EncodedPrompt, encode_prompts
from mtplx.forge.verify.settings import VerifySettings
from mtplx.forge.verify.speed import SpeedResult, measure_speed
from mtplx.forge.verify.verdict import VerifyVerdict, conclude
from mtplx.runtime.loading.folder import load
from mtplx.runtime.model import Model
from mtplx.runtime.sampling.acceptance import make_acceptance

Progress = Callable[[str, float], None]
# Shares of the work after which exactness, and the laws, are done when speed is measured too.
_EXACT, _LAWS = 0.5, 0.6


@dataclass(frozen=True, slots=True)
class Verification:
    """What was measured, and what follows.

    `on` describes device and versions, `timestamp` is the time of its beginning, `warnings` are those of loading.
    """

    settings: VerifySettings
    prompts: tuple[EncodedPrompt, ...]
    exactness: ExactnessResult
    law: LawResult
    speed: SpeedResult | None
    on: dict[str, Any]
    timestamp: str
    warnings: tuple[str, ...] = ()

    @property
    def verdict(self) -> VerifyVerdict:
        """The conclusion."""
        return conclude(self.exactness, self.law, self.speed)[0]

    @property
    def failure_reasons(self) -> tuple[str, ...]:
        """Why the verdict is not a win; empty for one."""
        return conclude(self.exactness, self.law, self.speed)[1]

    @property
    def exit_code(self) -> int:
        """That of the verdict."""
        return self.verdict.exit_code

    def to_json(self) -> dict[str, Any]:
        """Verdict, rows and all figures; names of rows are those of the public format."""
        return {
            "verdict": str(self.verdict),
            "exit_code": self.exit_code,
            "failure_reasons": list(self.failure_reasons),
            "rows": [row.to_json() for row in self.speed.rows] if self.speed else [],
            "exactness": self.exactness.to_json(),
            "law": self.law.to_json(),
            "settings": self.settings.to_json(),
            "prompts": {prompt.name: prompt.sha256 for prompt in self.prompts},
            "verified_on": {"timestamp": self.timestamp, **self.on},
            "warnings": list(self.warnings),
        }

    def contract_fields(self) -> dict[str, Any]:
        """The fields of a contract that a verification decides, speed only where it was measured."""
        exact = self.exactness
        fields: dict[str, Any] = {
            "exactness": {
                "passed": self.verdict is not VerifyVerdict.EXACTNESS_FAILED,
                "tokens": exact.tokens,
                "differences": len(exact.differences),
                "numeric_ties": len(exact.ties),
                "tested_on": tested_on(self.settings, self.prompts, exact, self.on),
                "law": self.law.to_json(),
            },
            "exactness_baseline": {
                "passed": self.verdict is not VerifyVerdict.EXACTNESS_FAILED,
                "tokens": exact.tokens,
                "method": "greedy and seeded text with MTP on and off, token by token",
            },
            "speed_evidence": None,
            "verified_on": {"timestamp": self.timestamp, **self.on},
            "mtp_depth_max": max(self.settings.depths),
            "recommended_generation_mode": None,
        }
        if self.speed is not None:
            wins = self.verdict is VerifyVerdict.MTP_DEPTH_WINS
            fields["recommended_generation_mode"] = "mtp" if wins else "ar"
            fields["speed_evidence"] = speed_evidence(
                self.speed,
                self.verdict,
                self.failure_reasons,
                self.settings,
                self.prompts,
                self.on,
            )
        return fields


def require_head(folder: Path) -> None:
    """Raise what is wrong with `folder`, from its metadata alone, before minutes are spent on it.

    Raises:
        HeadMissingError: there is no head, or none that can be run.
        MTPLXError: the folder can't be run at all.
    """
    inspection = inspect_folder(folder)
    inspection.raise_if_unrunnable()
    if not inspection.can_use_head:
        raise HeadMissingError(
            f"{folder} has no MTP head that can be verified (config and files: "
            f"{inspection.head.state}).",
            hint="`mtplx inspect` says what it is.",
        )


def verify_artifact(
    folder: Path,
    settings: VerifySettings,
    on_progress: Progress = lambda _label, _fraction: None,
    *,
    make: Make = make_acceptance,
) -> Verification:
    """Test the artifact in `folder` for exactness, and measure its speed unless it failed or `settings` say no.

    `make` builds the acceptance laws that are tested statistically. One copy of the model is in memory at a time.

    Raises:
        HeadMissingError: there is no head, or none that can be run.
        UsageError: `SOURCE_DATE_EPOCH` is no time.
        MTPLXError: the folder can't be run.
    """
    begun = timestamp()
    require_head(folder)
    model = load(folder)
    prompts = tuple(encode_prompts(model, settings.prompts))
    exactness, law = _check_exact(model, prompts, settings, on_progress, make)
    on, warnings = machine(model.device), tuple(model.warnings)
    speed = None
    if settings.with_speed and exactness.passed and law.passed:
        # The measuring process loads the model once more.
        del model
        gc.collect()
        mx.clear_cache()
        report = _part(on_progress, _LAWS, 1.0)
        speed = measure_speed(folder, prompts, settings, report)
    return Verification(settings, prompts, exactness, law, speed, on, begun, warnings)


def _check_exact(
    model: Model,
    prompts: tuple[EncodedPrompt, ...],
    settings: VerifySettings,
    on_progress: Progress,
    make: Make,
) -> tuple[ExactnessResult, LawResult]:
    stretch = 1.0 if settings.with_speed else 1.0 / _LAWS
    report = _part(on_progress, 0.0, _EXACT * stretch)
    exactness = check_exactness(model, prompts, settings, report)
    report = _part(on_progress, _EXACT * stretch, _LAWS * stretch)
    return exactness, check_laws(model, prompts, settings, report, make=make)


def _part(on_progress: Progress, start: float, end: float) -> Progress:
    """Progress of one part of the work, told as progress of the whole."""
    return lambda label, fraction: on_progress(label, start + (end - start) * fraction)
