"""All checks in order: reads the facts and hands them to the checks."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtplx.contracts.errors import MTPLXError
from mtplx.contracts.folders import state_folder
from mtplx.contracts.inspection import inspect_folder
from mtplx.runtime.diagnostics import (
    backend,
    folders,
    hub,
    last_failure,
    machine,
    model,
    packages,
    tuning,
)
from mtplx.runtime.diagnostics.catalogue import CATALOGUE
from mtplx.runtime.diagnostics.report import Check, Report
from mtplx.runtime.server.state_file import server_on

# Gets what is being done and the share that is done, 0 to 1.
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to look at, and what this package cannot know itself.

    `model` is a folder, or why none could be chosen; `kv_bits` and `port` as the settings have them.
    `load_config` raises UsageError when the settings are wrong; they are in `config_file`.
    """

    version: str
    model: Path | MTPLXError
    kv_bits: int | None = None
    port: int
    load_config: Callable[[], object]
    config_file: Path
    deep: bool = False
    strict: bool = False


def examine(request: Request, on_progress: Progress = lambda _what, _share: None) -> Report:
    """Run every check; a few seconds, longer with `deep`."""
    on_progress("packages", 0.0)
    installed = packages.read_installed()
    system = machine.read_platform()
    available, total = machine.read_memory()
    checks = [
        machine.check_python(machine.read_python()),
        machine.check_platform(system),
        packages.check_conflict(installed),
        packages.check_versions(packages.read_requirements(), installed),
    ]
    on_progress("MLX", 0.1)
    mlx = backend.probe_backend()
    checks += backend.check_backend(mlx)
    on_progress("folders", 0.4)
    checks += _folder_checks(request)
    checks.append(machine.check_memory(available, total))
    checks.append(machine.check_disk(machine.read_disks(_kept_in())))
    on_progress("the model", 0.5)
    memory = model.Memory(available, total)
    if mlx.gpu_memory is not None:
        memory = model.Memory(mlx.gpu_memory["free"], mlx.gpu_memory["total"], "GPU memory")
    checks += _model_checks(request, memory, mlx)
    on_progress("installations", 0.8)
    own = server_on(request.port)
    checks += [
        machine.check_port(
            request.port,
            machine.port_problem(request.port),
            system.system,
            None if own is None else own.model,
        ),
        packages.check_executables(packages.read_executables(), request.version),
    ]
    on_progress("the hub" if request.deep else "records", 0.9)
    checks += hub.check_hub(hub.read_hub() if request.deep else None)
    failure, file = last_failure.read_failure(), last_failure.record_file()
    checks.append(last_failure.check_last_failure(failure, file))
    return Report.of(
        in_order(checks), version=request.version, deep=request.deep, strict=request.strict
    )


def in_order(checks: list[Check]) -> list[Check]:
    """`checks` in the order of the catalogue."""
    places = {entry.id: place for place, entry in enumerate(CATALOGUE)}
    return sorted(checks, key=lambda check: places[check.id])


def _folder_checks(request: Request) -> list[Check]:
    return [
        folders.check_config(request.load_config, request.config_file),
        folders.check_state_folder(folders.read_folder(state_folder())),
    ]


def _model_checks(request: Request, memory: model.Memory, mlx: backend.BackendFacts) -> list[Check]:
    if isinstance(request.model, MTPLXError):
        return [*model.unusable(request.model), tuning.no_model()]
    inspection = inspect_folder(request.model, verify_hashes=request.deep)
    return [
        *model.check_inspection(inspection, memory),
        tuning.check_tuning(inspection, mlx, request.kv_bits),
    ]


def _kept_in() -> dict[str, Path]:
    from huggingface_hub import constants

    return {"records": state_folder(), "downloads": Path(constants.HF_HUB_CACHE)}
