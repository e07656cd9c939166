"""One JSON file to attach to a report of a problem, without anything private."""

import platform
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import UsageError
from mtplx.runtime.diagnostics.last_failure import LastFailure
from mtplx.runtime.diagnostics.redaction import Redactor
from mtplx.runtime.diagnostics.report import Check, Report

BUNDLE_VERSION = 1

_ABOUT_MODELS = ("model.", "tuning.", "app.")
_MODEL_MARK = "<model>"

_PACKAGES = ("mtplx", "mlx", "mlx-cpu", "mlx-cuda-12", "mlx-cuda-13", "mlx-metal", "mlx-lm")
_OTHERS = ("huggingface-hub", "numpy", "pydantic", "tokenizers", "transformers", "typer")


def make_bundle(
    report: Report,
    *,
    installed: Mapping[str, str],
    config_keys: Mapping[str, object],
    last_failure: LastFailure | str | None,
    models: Iterable[str | Path],
    redactor: Redactor,
) -> dict[str, Any]:
    """Report, versions, names of settings and the last failure, redacted; ready for JSON.

    `models` are names and paths of the model that the report is on, which are not shown either.
    """
    bundle = {
        "bundle_version": BUNDLE_VERSION,
        "report": report.model_dump(mode="json", exclude={"checks"}),
        "versions": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            **{name: installed[name] for name in (*_PACKAGES, *_OTHERS) if name in installed},
        },
        "config": dict(config_keys),
    }
    redacted: dict[str, Any] = redactor.value(bundle)
    # A model's own name may be any word, so that only texts that can speak of it are searched.
    knowing = redactor
    for model in models:
        knowing = knowing.knowing(model, _MODEL_MARK)
    failure = None
    if isinstance(last_failure, LastFailure):
        if last_failure.model is not None:
            knowing = knowing.knowing(last_failure.model, _MODEL_MARK)
        failure = knowing.value(last_failure.model_dump(mode="json"))
    redacted["report"]["checks"] = [
        (knowing if check.id.startswith(_ABOUT_MODELS) else redactor).value(_shareable(check))
        for check in report.checks
    ]
    return {**redacted, "last_failure": failure}


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
    if check.id == "model.integrity" and check.exit_code == UsageError.exit_code:
        # The message lists models that lie on this machine.
        row |= {"observed": "the name does not say which model (names are left out)", "fix": ""}
    return row
