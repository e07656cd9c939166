"""The phases of a build, each a function that does nothing when its result is already there.

mlx is imported where it is needed: planning and downloading work without it.
"""

import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import CorruptModelError, ExactnessError, ResourceError
from mtplx.contracts.files import sha256_file
from mtplx.contracts.identity import FileRecord
from mtplx.contracts.inspection import Inspection
from mtplx.forge.brand import DEGRADED, UNCALIBRATED, Evidence
from mtplx.forge.brand import brand as write_brand
from mtplx.forge.job import BuildJob, Report
from mtplx.forge.meter import Meter
from mtplx.forge.plan import make_plan

HEAD_FILE = "mtp/head.safetensors"


def download(job: BuildJob, report: Report) -> None:
    """Bring the source here. A local folder is here already."""
    if _source_folder(job) is not None:
        return
    meter = Meter(sum(file.size for file in job.source.files))

    def advance(done: int, total: int) -> None:
        meter.total = total
        meter.feed(time.monotonic(), done)
        job.run.progress("download", {"label": "downloading", **meter.to_json()})
        report("download", f"downloading {job.source.label}", done / max(total, 1))

    folder = job.source.fetch(advance)
    job.run.finish(
        "download", {"label": "done", **meter.to_json(), "folder": str(folder.resolve())}
    )


def convert(job: BuildJob, report: Report) -> None:
    """Write trunk, head and side files of the artifact."""
    if job.run.result("convert") is not None:
        return
    from mtplx.forge.convert.head import convert_head
    from mtplx.forge.convert.side_files import copy_side_files
    from mtplx.forge.convert.trunk import convert_trunk

    folder, inspection = _inspected_source(job)
    out = job.run.artifact
    out.mkdir(exist_ok=True)
    files = _records(job.run.partial("convert").get("files", {}))
    _check_disk(job, files)

    def on_progress(label: str, fraction: float) -> None:
        job.run.progress("convert", _convert_state(label, fraction, files))
        report("convert", label, fraction)

    def on_shard(name: str, record: FileRecord) -> None:
        files[name] = record
        job.run.progress("convert", _convert_state(name, 0.0, files), at_once=True)

    trunk = convert_trunk(
        folder,
        inspection,
        job.recipe,
        out,
        finished=dict(files),
        on_shard=on_shard,
        on_progress=on_progress,
    )
    head = convert_head(
        folder,
        inspection,
        job.recipe,
        out,
        allow_degraded_mtp=job.request.allow_degraded_mtp,
        is_calibrated_next=job.request.calibrate,
    )
    side = copy_side_files(folder, inspection, job.recipe, out)
    files = {**trunk, HEAD_FILE: head.file, **side}
    state = _convert_state("done", 1.0, files)
    job.run.finish("convert", {**state, "head": head.to_json()})


def calibrate(job: BuildJob, report: Report) -> None:
    """Find the head's wiring by measurement, and correct its norms where they were stored shifted."""
    if not job.request.calibrate:
        return
    if job.run.result("calibrate") is None:
        from mtplx.forge.calibrate.calibration import calibrate as measure
        from mtplx.forge.calibrate.texts import calibration_texts, texts_from_file
        from mtplx.runtime.loading.folder import load

        write_brand(job.run.artifact, _evidence(job), with_content=False)
        report("calibrate", "loading the artifact", 0.0)
        model = load(job.run.artifact)
        texts = (
            calibration_texts(model)
            if job.calibration_text is None
            else texts_from_file(model, job.calibration_text)
        )

        def on_progress(label: str, fraction: float) -> None:
            job.run.progress("calibrate", {"label": label, "progress": fraction})
            report("calibrate", label, fraction)

        found = measure(model, texts, on_progress=on_progress)
        job.run.finish(
            "calibrate", {"label": "done", "progress": 1.0, "calibration": found.to_json()}
        )
    _correct_norms(job)


def verify(job: BuildJob, report: Report) -> None:
    """Measure exactness and speed of the artifact. Raises ExactnessError when it is not exact."""
    if job.run.result("verify") is None and job.request.verify != "none":
        from mtplx.forge.verify.settings import VerifySettings
        from mtplx.forge.verify.verify import verify_artifact

        write_brand(job.run.artifact, _evidence(job), with_content=False)

        def on_progress(label: str, fraction: float) -> None:
            job.run.progress("verify", {"label": label, "progress": fraction})
            report("verify", label, fraction)

        settings = VerifySettings(with_speed=job.request.verify == "full")
        found = verify_artifact(job.run.artifact, settings, on_progress)
        state = {"label": "done", "progress": 1.0, "exit_code": found.exit_code}
        job.run.finish("verify", {**state, **found.to_json(), "contract": found.contract_fields()})
    result = job.run.result("verify") or {}
    if result.get("exit_code") == ExactnessError.exit_code:
        raise ExactnessError(
            f"The artifact of {job.run.path} is not exact: " + "; ".join(result["failure_reasons"]),
            hint=f"It stays in {job.run.artifact} and gets no name; {job.run.path / 'verify.json'} "
            "has every difference.",
        )


def brand(job: BuildJob, report: Report) -> None:
    """Write the contract with the hashes of everything and all that was measured."""
    report("brand", "hashing the artifact", 0.0)
    _check_written(job)
    contract = write_brand(job.run.artifact, _evidence(job), with_content=True)
    job.run.finish(
        "brand", {"branded_name": job.request.name, "runtime_metadata": contract.to_json()}
    )


def _evidence(job: BuildJob) -> Evidence:
    """What the finished phases recorded."""
    converted = job.run.result("convert") or {}
    calibrated = job.run.result("calibrate") or {}
    verified = job.run.result("verify") or {}
    request = job.request
    return Evidence(
        head={
            "quantization": converted["head"]["quantization"],
            "policy": job.recipe.mtp_policy,
            "norm_encoding": "absolute",
        },
        calibration=calibrated.get("calibration"),
        verification=verified.get("contract"),
        provenance={
            "source_repo": request.source,
            "source_sha": request.commit,
            "source_format": job.plan.format.value,
            "forge_recipe": dict(request.recipe),
            "forge_inputs": request.digest(),
            "mtplx_version": request.versions["mtplx"],
            "versions": dict(request.versions),
            "forged_locally": True,
        },
        labels=_labels(job),
    )


def _labels(job: BuildJob) -> tuple[str, ...]:
    labels = {DEGRADED: job.recipe.degrades_head, UNCALIBRATED: not job.request.calibrate}
    return tuple(label for label, applies in labels.items() if applies)


def _source_folder(job: BuildJob) -> Path | None:
    """Where the finished download lies, as far as it is still there."""
    folder = Path((job.run.result("download") or {}).get("folder", ""))
    sizes = {file.name: file.size for file in job.source.files}
    is_whole = all(
        (folder / name).is_file() and (folder / name).stat().st_size == size
        for name, size in sizes.items()
    )
    return folder if folder.is_absolute() and is_whole else None


def _inspected_source(job: BuildJob) -> tuple[Path, Inspection]:
    """The source on disk, planned once more by the function that planned it from afar."""
    folder = _source_folder(job)
    if folder is None:
        raise CorruptModelError(
            f"The source of {job.run.path} has changed since it was fetched.",
            hint="Build again with --resume to fetch what is missing.",
        )
    plan = make_plan(
        job.source, folder, job.recipe, allow_degraded_mtp=job.request.allow_degraded_mtp
    )
    plan.require_forgeable()
    return folder, plan.inspection


def _check_disk(job: BuildJob, written: Mapping[str, FileRecord]) -> None:
    needed = job.plan.artifact_bytes - sum(record.size for record in written.values())
    free = shutil.disk_usage(job.run.path).free
    if free < needed:
        raise ResourceError(
            f"{job.run.path} has {free / 2**30:.1f} GiB free and the artifact needs "
            f"{needed / 2**30:.1f} GiB more.",
            hint="Free some disk space, or choose another --out; then add --resume.",
        )


def _correct_norms(job: BuildJob) -> None:
    """Apply the shift that calibration found; once, however often the build was killed here."""
    shift = (job.run.result("calibrate") or {})["calibration"]["norm_shift"]
    if not shift:
        return
    from mtplx.forge.convert.head import apply_norm_shift

    path = job.run.artifact / HEAD_FILE
    if sha256_file(path) == _written(job)[HEAD_FILE].sha256:
        apply_norm_shift(path, shift)


def _check_written(job: BuildJob) -> None:
    """What lies on the disk is what was written, apart from a head whose norms were corrected."""
    for name, record in _written(job).items():
        path = job.run.artifact / name
        if not path.is_file() or path.stat().st_size != record.size:
            raise CorruptModelError(
                f"{path} changed during the build: expected {record.size} bytes.",
                hint=f"Something else wrote there. Remove {job.run.path} and build again.",
            )


def _written(job: BuildJob) -> dict[str, FileRecord]:
    return _records((job.run.result("convert") or {})["files"])


def _records(files: Mapping[str, Mapping[str, Any]]) -> dict[str, FileRecord]:
    return {name: FileRecord(**record) for name, record in files.items()}


def _convert_state(label: str, fraction: float, files: Mapping[str, FileRecord]) -> dict[str, Any]:
    records = {name: asdict(record) for name, record in files.items()}
    return {"label": label, "progress": fraction, "files": records}
