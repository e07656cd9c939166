"""The small trained model that is used when no model is named."""

from pathlib import Path

from mtplx.contracts.errors import ModelNotFoundError


def demo_model_path() -> Path:
    """The folder of the bundled demo model: inside the installed package, or in a checkout.

    Raises ModelNotFoundError when neither place has it.
    """
    package = Path(__file__).resolve().parent
    places = (package / "demo_model", package.parent / "examples" / "demo-model")
    for folder in places:
        if (folder / "config.json").is_file():
            return folder
    raise ModelNotFoundError(
        f"the bundled demo model is not there; looked in {places[0]} and {places[1]}",
        hint="Name a model folder with --model, or reinstall mtplx.",
    )
