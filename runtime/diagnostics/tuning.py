"""What `mtplx tune` found for the chosen model: whether there is a result, and whether it still holds."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mtplx.contracts.errors import MTPLXError
from mtplx.contracts.inspection import Inspection
from mtplx.runtime.diagnostics.backend import BackendFacts
from mtplx.runtime.diagnostics.catalogue import passed, skipped, warned
from mtplx.runtime.diagnostics.report import Check

if TYPE_CHECKING:
    from mtplx.runtime.tuning.conditions import Conditions
    from mtplx.runtime.tuning.record import TuningRecord

_ID = "tuning.record"


def check_tuning(inspection: Inspection, mlx: BackendFacts, kv_bits: int | None) -> Check:
    """Whether the result of the model holds on this machine, as far as that is known without loading the model."""
    if not inspection.can_run:
        return no_model()
    if not inspection.can_use_head:
        return skipped(_ID, "the model has no head that could be tuned")
    try:
        from mtplx.runtime.tuning.store import TuningStore, look_up, tune_command
    except ImportError as missing:  # a check of its own says so
        return skipped(_ID, f"{missing.name} is missing")
    command = tune_command(inspection.path, kv_bits)
    store = TuningStore.of_this_user()
    try:
        conditions = read_known(inspection, mlx, kv_bits)
        found = look_up(store.read(), inspection, conditions)
    except MTPLXError as error:
        show = f"ls -l {shlex.quote(str(store.path))}"
        is_damaged = error.code == "damaged_tuning_store"
        return warned(_ID, error.message, error.hint, command if is_damaged else show)
    if found.record is not None:
        return passed(_ID, _current(found.record, conditions))
    if found.stale is not None:
        observed = f"a result that is not used, because of what has changed since: {found.stale}"
        return warned(_ID, observed, "Tune the model again.", command)
    observed = f"never tuned; `{command}` finds the fastest depth"
    return skipped(_ID, observed, command)


def no_model() -> Check:
    """The check where there is no model to look at."""
    return skipped(_ID, "the model cannot be used")


def read_known(inspection: Inspection, mlx: BackendFacts, kv_bits: int | None) -> Conditions:
    """The conditions as far as the probe of MLX and this process know them."""
    from mtplx.runtime.tuning.conditions import conditions_without_mlx, device_conditions

    known = conditions_without_mlx(inspection, kv_bits)
    if mlx.backend is not None:
        blas = mlx.backend["blas"]
        name = None if blas is None else blas["name"]
        known |= device_conditions(mlx.backend["device"], mlx.backend["kind"], name)
    if mlx.chip is not None:
        known |= {"chip": mlx.chip}
    return known


def _current(record: TuningRecord, conditions: Conditions) -> str:
    from mtplx.runtime.tuning.record import depth_name

    unknown = [name for name in record.conditions if name not in conditions]
    unsaid = f"; not compared: {', '.join(unknown)}" if unknown else ""
    return f"{depth_name(record.depth)}, measured on {record.time:%Y-%m-%d}{unsaid}"
