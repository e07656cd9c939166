"""`build_outcome.json`: how a build ended, under the names of the public format."""

from typing import Any

from mtplx.contracts.errors import CalibrationError, ExactnessError, MTPLXError
from mtplx.forge.job import BuildJob

CANCELLED = "cancelled"
UNVERIFIED = "unverified"


def success_outcome(job: BuildJob) -> dict[str, Any]:
    """The outcome of a build whose artifact has its name; a verdict may still be a losing one."""
    verified = job.run.result("verify") or {}
    return {
        **_common(job, "brand"),
        "converted_path": str(job.target.resolve()),
        "verdict": verified.get("verdict", UNVERIFIED),
        "failure_reasons": verified.get("failure_reasons", []),
        "message": f"{job.target.name} is ready.",
        "diagnostic": None,
        "exit_code": verified.get("exit_code", 0),
        **_evidence(verified),
    }


def failure_outcome(
    job: BuildJob, phase: str, error: MTPLXError | KeyboardInterrupt
) -> dict[str, Any]:
    """The outcome of a build that ended in `phase`."""
    message = str(error) or "interrupted"
    return {
        **_common(job, phase),
        "converted_path": str(job.run.artifact) if job.run.artifact.is_dir() else None,
        "verdict": _verdict(error),
        "failure_reasons": [message],
        "message": message,
        "diagnostic": error.to_json() if isinstance(error, MTPLXError) else None,
        "exit_code": error.exit_code if isinstance(error, MTPLXError) else 130,
        **_evidence(job.run.result("verify") or {}),
    }


def _verdict(error: MTPLXError | KeyboardInterrupt) -> str:
    if isinstance(error, CalibrationError):
        return "contract_calibration_failed"
    if isinstance(error, ExactnessError):
        return "exactness_failed"
    return error.code if isinstance(error, MTPLXError) else CANCELLED


def _common(job: BuildJob, phase: str) -> dict[str, Any]:
    return {
        "run_id": job.run.run_id,
        "phase": phase,
        "recipe": job.recipe.name,
        "architecture_id": job.plan.architecture_id,
    }


def _evidence(verified: dict[str, Any]) -> dict[str, Any]:
    rows = verified.get("rows", [])
    speed = (verified.get("contract") or {}).get("speed_evidence") or {}
    return {
        "verify_rows": rows,
        "speed_evidence": speed or None,
        "ar_tok_s": speed.get("ar_tok_s"),
        "best_mtp_depth": speed.get("depth"),
        "best_mtp_tok_s": speed.get("tok_s"),
        "best_mtp_multiplier_vs_ar": speed.get("gain"),
    }
