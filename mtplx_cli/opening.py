"""Opening the model that a command works with."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mtplx.contracts.errors import HeadMissingError
from mtplx.demo import demo_model_path
from mtplx.library import resolve_model
from mtplx.screen import Screen

if TYPE_CHECKING:
    from mtplx.runtime.model import Model

# Takes what `mtplx.load` takes.
Loader = Callable[..., "Model"]


def open_model(
    load: Loader | None,
    screen: Screen,
    path: str | None,
    *,
    mtp: bool | None = None,
    kv_bits: int | None = None,
    verify_hashes: bool = False,
) -> "Model":
    """Load the model at `path`, or the bundled one, with progress and warnings on the screen.

    `mtp` is None where the user said nothing: the head is used if there is one. `verify_hashes`
    reads every byte of the model before it is loaded.
    Raises HeadMissingError when `mtp` is True and there is none, and whatever the loader raises.
    """
    folder = choose_folder(screen, path)
    with screen.progress() as progress:
        model = (load or _default_loader())(
            folder,
            mtp=mtp is not False,
            kv_bits=kv_bits,
            verify_hashes=verify_hashes,
            on_progress=progress.update,
        )
    for warning in model.warnings:
        screen.warn(warning)
    if mtp and not model.has_head:
        raise HeadMissingError(
            f"--mtp asks for multi-token prediction, and {folder} has no MTP head",
            hint="Leave --mtp out to decode plainly, or choose a model with a head.",
        )
    return model


def choose_folder(screen: Screen, path: str | None) -> Path:
    """The folder that `path` means, by path or name, or the bundled one, which the screen says."""
    if path is not None:
        return resolve_model(path)
    folder = demo_model_path()
    screen.note(f"no model named; using the bundled demo model in {folder}")
    return folder


def _default_loader() -> Loader:
    import mtplx

    return mtplx.load
