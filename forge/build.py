"""Building an artifact: download, convert, calibrate, verify, brand; each phase is done once.

A build can be killed at any point. The run folder says which phases are finished; a resumed build
does the rest and ends with the same bytes. The artifact gets its name by one rename at the end.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import MTPLXError, UsageError
from mtplx.contracts.files import sync_folder
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.runtime_contract import RuntimeContract, read_contract
from mtplx.forge import phases
from mtplx.forge.cancel import registered
from mtplx.forge.job import BuildJob, Report
from mtplx.forge.outcome import failure_outcome, success_outcome
from mtplx.forge.plan import make_plan
from mtplx.forge.recipe import Recipe
from mtplx.forge.request import BuildRequest, VerifyExtent, check_name, source_digest, versions
from mtplx.forge.run_folder import RunFolder
from mtplx.forge.source import open_source

_PHASES = (
    ("download", phases.download),
    ("convert", phases.convert),
    ("calibrate", phases.calibrate),
    ("verify", phases.verify),
    ("brand", phases.brand),
)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """A finished build; `outcome` is what `build_outcome.json` holds, `exit_code` the verification's."""

    path: Path
    contract: RuntimeContract
    outcome: dict[str, Any]
    exit_code: int


def prepare_build(
    source_text: str,
    recipe: Recipe,
    out: Path,
    *,
    revision: str | None = None,
    name: str | None = None,
    run_id: str | None = None,
    resume: bool = False,
    calibrate: bool = True,
    verify: VerifyExtent = "full",
    allow_degraded_mtp: bool = False,
    calibration_text: Path | None = None,
) -> BuildJob:
    """Plan a build and check that it can start. Nothing is written.

    A run that is gone on with stays at the commit it was started with, wherever the branch is now.

    Raises:
        UsageError: a name is taken or unfit, or the run was started for something else.
        DownloadError: the hub can't be reached, or has no such repository.
        MTPLXError: the plan refuses the source; `Plan.require_forgeable` says why.
    """
    source = open_source(source_text, revision=revision)
    name = check_name(name or f"{source.name}-mtplx-{recipe.name}", "--name")
    run = RunFolder(out / check_name(run_id or f"run-{name}", "--run-id"))
    if run.run_id == name:
        raise UsageError(
            f"--run-id and --name are both {name}; run folder and artifact lie side by side in {out}.",
            hint="Give one of them another name.",
        )
    started_at = (run.request() or {}).get("commit")
    if resume and revision is None and started_at != source.commit and started_at is not None:
        source = open_source(source_text, revision=started_at)
    with source.skeleton() as folder:
        plan = make_plan(source, folder, recipe, allow_degraded_mtp=allow_degraded_mtp)
        plan.require_forgeable()
        assert plan.inspection.index is not None
        digest = source_digest(folder, plan.inspection.index)
    request = BuildRequest(
        source=source.repo,
        commit=source.commit,
        source_digest=digest,
        name=name,
        recipe=recipe.model_dump(mode="json"),
        calibrate=calibrate,
        verify=verify,
        allow_degraded_mtp=allow_degraded_mtp,
        calibration_text=_digest(calibration_text),
        versions=versions(),
    )
    job = BuildJob(run, source, recipe, plan, request, out / name, calibration_text)
    _check_place(job, resume=resume)
    return job


def run_build(job: BuildJob, report: Report) -> BuildResult:
    """Do what is left of a build.

    Raises:
        MTPLXError: a phase failed, or the result is not exact; `build_outcome.json` says which.
        KeyboardInterrupt: the run was cancelled; it can be resumed.
    """
    run = job.run
    with run.lock(), registered(run):
        if run.request() is None:
            run.start(job.request.to_json())
        phase = "brand"
        try:
            if not job.is_branded:
                for phase, work in _PHASES:  # noqa: B007
                    work(job, report)
            _give_name(job)
        except (MTPLXError, KeyboardInterrupt) as error:
            run.write("build_outcome", failure_outcome(job, phase, error))
            raise
        return _finish(job)


def _check_place(job: BuildJob, *, resume: bool) -> None:
    """The run is new, or is the one to go on with; the artifact's name is free, or is its own."""
    recorded = job.run.request()
    if recorded is not None and not resume:
        raise UsageError(
            f"{job.run.path} exists: a build of that id was started before.",
            hint="Add --resume to go on with it, or give another --run-id.",
        )
    if recorded is not None:
        job.request.check_same(recorded, job.run.path)
    if job.target.exists() and not job.is_branded:
        raise UsageError(
            f"{job.target} exists; a build replaces nothing.",
            hint="Give another --name, or remove it.",
        )


def _give_name(job: BuildJob) -> None:
    """The rename that makes the artifact appear; done already when an earlier attempt got so far."""
    if job.run.artifact.exists():
        job.run.artifact.rename(job.target)
        sync_folder(job.target.parent)
    elif not (job.target / CONTRACT_NAME).is_file():
        raise UsageError(
            f"The finished artifact of {job.run.path} is gone: neither {job.run.artifact} nor "
            f"{job.target} is there.",
            hint="Remove the run folder and build again.",
        )


def _finish(job: BuildJob) -> BuildResult:
    contract = read_contract(job.target)
    assert contract is not None
    outcome = success_outcome(job)
    metadata = contract.to_json()
    job.run.write("forge", {"local_path": str(job.target.resolve()), "runtime_metadata": metadata})
    job.run.write("build_outcome", outcome)
    return BuildResult(job.target, contract, outcome, int(outcome["exit_code"]))


def _digest(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as cause:
        raise UsageError(
            f"--calibration-text: {path} cannot be read: {cause.strerror}.", hint="Check the path."
        ) from cause
