"""One JSON file to attach to a report of a problem, without anything private."""

import platform
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mtplx.runtime.diagnostics.last_failure import LastFailure
from mtplx.runtime.diagnostics.redaction import Redactor
from mtplx.runtime.diagnostics.report import Check, Report

BUNDLE_VERSION = 1

_PACKAGES = ("mtplx", "mlx", "mlx-cpu", "mlx-cuda-12", "mlx-cuda-13", "mlx-metal", "mlx-lm")
_OTHERS = ("huggingface-hub", "numpy", "pydantic", "tokenizers", "transformers", "typer")


def make_bundle(
    report: Report,
    *,
    installed: Mapping[str, str],
    config_keys: Mapping[str, object],
    last_failure: LastFailure | str | None,
    redactor: Redactor,
) -> dict[str, Any]:
    """Report, versions, names of settings and the last failure, redacted; ready for JSON."""
    failure = last_failure
    bundle = {
        "bundle_version": BUNDLE_VERSION,
        "report": {
            **report.model_dump(mode="json"),
            "checks": [_shareable(check) for check in report.checks],
        },
        "versions": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            **{name: installed[name] for name in (*_PACKAGES, *_OTHERS) if name in installed},
        },
        "config": dict(config_keys),
        "last_failure": failure.model_dump(mode="json")
        if isinstance(failure, LastFailure)
        else None,
    }
    redacted: dict[str, Any] = redactor.value(bundle)
    return redacted


def read_config_keys(file: Path, known: Collection[str]) -> dict[str, object]:
    """`keys` of ours that the file sets, and how many others (`unknown`); no values.

    A file that cannot be read has null for both.
    """
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (OSError, ValueError):
        return {"keys": None, "unknown": None}
    return {
        "keys": sorted(found.keys() & set(known)),
        "unknown": len(found.keys() - set(known)),
    }


def _shareable(check: Check) -> dict[str, Any]:
    row = check.model_dump(mode="json")
    if check.id == "config.file" and check.needs_action:
        # The message repeats the value that is wrong, which may be anything.
        row["observed"] = "a setting is not valid (its value is left out)"
    return row
