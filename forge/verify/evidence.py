"""What a verification leaves behind: enough to be repeated, and nothing about the machine's owner."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import psutil

from mtplx.contracts.errors import UsageError
from mtplx.forge.verify.exactness import ExactnessResult
from mtplx.forge.verify.prompts import EncodedPrompt, one_of_each_domain
from mtplx.forge.verify.settings import VerifySettings
from mtplx.forge.verify.speed import SpeedResult
from mtplx.forge.verify.verdict import VerifyVerdict

EPOCH_VARIABLE = "SOURCE_DATE_EPOCH"
_PACKAGES = ("mtplx", "mlx", "mlx-lm", "numpy", "transformers", "tokenizers")


def timestamp() -> str:
    """Now in UTC, or the time that `SOURCE_DATE_EPOCH` fixes for reproducible builds.

    Raises UsageError when that variable is no number of seconds.
    """
    wanted = os.environ.get(EPOCH_VARIABLE)
    if wanted is not None and not (wanted.isascii() and wanted.isdecimal()):
        raise UsageError(
            f"{EPOCH_VARIABLE} is {wanted!a}, expected seconds since 1970.",
            hint=f"`unset {EPOCH_VARIABLE}` to record the time of day.",
        )
    seconds = time.time() if wanted is None else int(wanted)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def machine(device: Mapping[str, Any]) -> dict[str, Any]:
    """What computes, and the versions that it computes with; `device` is that of the loaded model."""
    return {
        **device,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
    }


def tested_on(
    settings: VerifySettings,
    prompts: Sequence[EncodedPrompt],
    exactness: ExactnessResult,
    found: Mapping[str, Any],
) -> dict[str, Any]:
    """All that a replay of the exactness test needs, and the places where answers parted."""
    told = exactness.to_json()
    return {
        "settings": settings.to_json(),
        "prompts": {prompt.name: prompt.sha256 for prompt in prompts},
        "plain_sha256": exactness.plain_sha256,
        "differences": told["differences"],
        "ties": told["ties"],
        "drafts": told["drafts"],
        **found,
    }


def speed_evidence(
    speed: SpeedResult,
    verdict: VerifyVerdict,
    reasons: Sequence[str],
    settings: VerifySettings,
    prompts: Sequence[EncodedPrompt],
    found: Mapping[str, Any],
) -> dict[str, Any]:
    """`speed_evidence` of a contract; where no depth wins it describes the fastest."""
    best = speed.best
    return {
        "depth": best.depth,
        "tok_s": best.tok_s,
        "ar_tok_s": speed.plain.tok_s,
        "gain": best.gain.median,
        "gain_interval": [best.gain.low, best.gain.high],
        "acceptance_by_depth": list(best.acceptance),
        "acceptance_by_domain": best.acceptance_by_domain,
        "forge_verify_rows": [row.to_json() for row in speed.rows],
        "verdict": str(verdict),
        "failure_reasons": list(reasons),
        "conditions": {
            "prompts": {prompt.name: prompt.sha256 for prompt in one_of_each_domain(prompts)},
            "repeats": settings.repeats,
            "max_tokens": settings.max_tokens,
            "sampling": "greedy, end tokens ignored",
            "order": "plain and every depth in turns, after a warm-up",
            "interval": f"bootstrap of the median of paired ratios, confidence {speed.confidence:.4f}",
            **found,
            # The measuring process loads the model itself, and may have had less memory to do it in.
            **speed.device,
        },
    }
