"""`mtplx models`: the models that are on this machine."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtplx.commands.forge.flags import JsonOption, QuietOption
from mtplx.commands.forge.probe import gib
from mtplx.render import Row
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.contracts.inspection import Inspection
    from mtplx.library import FoundModel
    from mtplx.runtime.tuning.record import Depth


@dataclass(frozen=True, slots=True)
class Judged:
    """A found model, what it is, and the depth that `mtplx tune` found for it and that still holds."""

    model: "FoundModel"
    found: "Inspection"
    tuned_depth: "Depth | None" = None

    @property
    def is_incomplete(self) -> bool:
        """Whether parts are still to be fetched."""
        from mtplx.contracts.errors import ShardMissingError

        model = self.model
        lacks_weights = model.repo is not None and not any(model.path.rglob("*.safetensors"))
        is_probed_only = lacks_weights and (model.path / "config.json").exists()
        return model.is_pending or is_probed_only or isinstance(self.found.error, ShardMissingError)

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable account."""
        model, found = self.model, self.found
        return {
            "name": model.name,
            "path": str(model.path),
            "repo": model.repo,
            "commit": model.commit,
            "size_bytes": model.size_bytes,
            "family": found.family.name if found.family else None,
            "tier": found.tier.value,
            "can_run": found.can_run and not self.is_incomplete,
            "can_use_head": found.can_use_head and not self.is_incomplete,
            "tuned_depth": self.tuned_depth,
            "error": found.error.to_json() if found.error else None,
        }


def models(as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List the models of this machine: name, size, family, tier and tuned depth, and where they are.

    Looks into the models folder of mtplx, the folders of the setting model_dirs, and the cache of
    the hub, and reads headers only. Every name can be given as --model. Broken models are listed
    with the reason; downloads that have not ended are listed apart.

    Example: mtplx models

    Example: mtplx models --json | jq -r '.models[].name'
    """
    from mtplx.contracts.folders import models_folder
    from mtplx.contracts.inspection import inspect_folder
    from mtplx.library import find_models, model_folders

    library = find_models()
    screen = Screen(quiet=quiet or as_json)
    tuned_depth, problems = _tuned_depths()
    unreadable = [*library.unreadable, *problems]
    judged = []
    for model in library.models:
        found = inspect_folder(model.path)
        judged.append(Judged(model, found, tuned_depth(found)))
    whole = [item for item in judged if not item.is_incomplete]
    incomplete = [item for item in judged if item.is_incomplete]
    if as_json:
        screen.write_json(
            {
                "models_folder": str(models_folder()),
                "folders": [str(folder) for folder in model_folders()],
                "models": [item.to_json() for item in whole],
                "incomplete": [item.to_json() for item in incomplete],
                "unreadable": unreadable,
            }
        )
        return
    if not judged:
        places = ", ".join(str(folder) for folder in model_folders() or (models_folder(),))
        screen.note(f"no models in {places} or the hub's cache; `mtplx pull` fetches one")
    _show(screen, whole, incomplete, unreadable)


def _show(
    screen: Screen, whole: list[Judged], incomplete: list[Judged], unreadable: list[str]
) -> None:
    if whole:
        screen.table("Models", _rows(whole), sys.stdout)
    if incomplete:
        rows = [
            Row(item.model.name, f"{gib(item.model.size_bytes)} are there; {_remedy(item)}")
            for item in incomplete
        ]
        screen.table("Not complete", rows, sys.stdout)
    for text in unreadable:
        screen.warn(text)


def _rows(judged: list[Judged]) -> list[Row]:
    rows = []
    for item in judged:
        family = item.found.family.title if item.found.family else "unknown"
        facts = [gib(item.model.size_bytes), family, str(item.found.tier)]
        if item.found.can_use_head:
            facts.append(_tuned_text(item.tuned_depth))
        rows.append(Row(item.model.name, ", ".join(facts)))
        rows.append(Row("", str(item.model.path)))
        if item.found.error is not None:
            rows.append(Row("", item.found.error.message))
    return rows


def _tuned_depths() -> "tuple[Callable[[Inspection], Depth | None], list[str]]":
    """What tells the tuned depth of a model, as far as it holds without asking MLX, and what cannot be read."""
    from mtplx.config import Config
    from mtplx.contracts.errors import CorruptModelError, MTPLXError
    from mtplx.runtime.tuning.conditions import conditions_without_mlx
    from mtplx.runtime.tuning.store import Content, TuningStore, look_up

    kv_bits = Config.load().kv_cache_bits
    problems = []
    try:
        content = TuningStore.of_this_user().read()
    except MTPLXError as error:
        problems.append(str(error))
        content = Content()

    def tell(found: "Inspection") -> "Depth | None":
        if not found.can_use_head or not content.folders:
            return None
        try:
            record = look_up(content, found, conditions_without_mlx(found, kv_bits)).record
        except CorruptModelError:  # it went since it was inspected
            return None
        return None if record is None else record.depth

    return tell, problems


def _tuned_text(depth: "Depth | None") -> str:
    from mtplx.runtime.tuning.record import depth_name

    return "not tuned" if depth is None else f"tuned: {depth_name(depth)}"


def _remedy(item: Judged) -> str:
    if item.model.repo is None:
        assert item.found.error is not None, "folders are incomplete by an error only"
        return item.found.error.message
    return f"`mtplx pull {item.model.repo} --revision {item.model.commit}` goes on"
