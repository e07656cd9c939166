"""Using what `mtplx tune` found for the model that a command has opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtplx.contracts.errors import MTPLXError
from mtplx.contracts.folders import state_folder
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.config import Config
    from mtplx.runtime.model import Model
    from mtplx.runtime.tuning.record import TuningRecord
    from mtplx.runtime.tuning.store import Lookup

# What `mtplx.runtime.tuning.store` calls its file; importing it takes longer than looking.
_STORE = "tuning.json"


@dataclass(frozen=True, slots=True)
class Tuning:
    """Options that take the place of others, and what is told about them in JSON output.

    `report` has `status`: used, overridden (`by` says what the user chose), stale or unreadable
    (with a `reason`), or none.
    """

    options: dict[str, Any]
    report: dict[str, Any]


def use_tuning(
    model: "Model", screen: Screen, *, chosen: str | None, mtp: bool | None = None
) -> Tuning:
    """The tuned depth where the user has chosen none, and the measured costs for the policy.

    `chosen` is what decides about the depth in its place, see `depth_choice`. Who insists on `mtp`
    does not get plain decoding. What is used, and why a result for this model is not, is said on
    the screen.
    """
    if not _has_store() or not model.inspection.can_use_head:
        return Tuning({}, {"status": "none"})
    # Why a result is of no use concerns nobody who has chosen.
    tell = screen.warn if chosen is None else _say_nothing
    try:
        found = _find(model)
    except MTPLXError as error:
        tell(f"{str(error).removesuffix('.')}. The tuned depth is not used.")
        return Tuning({}, {"status": "unreadable", "reason": error.message})
    if found.stale is not None:
        tell(_stale_text(found.stale, model))
        return Tuning({}, {"status": "stale", "reason": found.stale})
    if found.record is None:
        return Tuning({}, {"status": "none"})
    if mtp and found.record.depth == 0:
        chosen = chosen or "the flag --mtp"
    return _apply(found.record, model, screen, chosen)


def depth_choice(
    config: "Config", explicit: Mapping[str, object], *, mtp: bool | None
) -> str | None:
    """What decides about the depth before a tuned one does; None where nobody has said anything.

    `explicit` are the values that `config` was loaded with.
    """
    if mtp is False:
        return "the flag --no-mtp"
    origin = config.origins(**explicit)["depth"]
    return None if origin.kind == "default" else str(origin)


def _apply(record: "TuningRecord", model: "Model", screen: Screen, chosen: str | None) -> Tuning:
    if model.has_head:
        model.known_costs = record.costs.to_costs()
    report = {"depth": record.depth, "time": record.time.isoformat(), "reason": record.reason}
    if chosen is not None:
        return Tuning({}, {"status": "overridden", "by": chosen, **report})
    screen.note(f"using what was tuned on {record.time:%Y-%m-%d}: {record.summary}")
    return Tuning({"depth": record.depth}, {"status": "used", **report})


def _has_store() -> bool:
    try:
        (state_folder() / _STORE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # reading it says what is wrong
        return True
    return True


def _find(model: "Model") -> "Lookup":
    """The record that holds here, or what has changed since there was one. Raises MTPLXError."""
    from mtplx.runtime.tuning.conditions import chip_name, read_conditions
    from mtplx.runtime.tuning.store import TuningStore, look_up

    conditions = read_conditions(model.inspection, model.device, chip_name(), model.kv_bits)
    return look_up(TuningStore.of_this_user().read(), model.inspection, conditions)


def _stale_text(stale: str, model: "Model") -> str:
    from mtplx.runtime.tuning.store import tune_command

    return (
        f"the tuned depth of this model is not used, because of what has changed since ({stale}); "
        f"`{tune_command(model.path, model.kv_bits)}` tunes again"
    )


def _say_nothing(_text: str) -> None:
    pass
