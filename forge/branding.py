"""A contract for a model folder that is run as it is, without conversion."""

from collections.abc import Callable
from pathlib import Path

from mtplx.contracts.errors import CalibrationError, HeadMissingError, UsageError
from mtplx.contracts.identity import CONTRACT_NAME
from mtplx.contracts.runtime_contract import RuntimeContract
from mtplx.forge.brand import Evidence, brand


def brand_folder(
    folder: Path,
    *,
    calibration_text: Path | None = None,
    on_progress: Callable[[str, float], None] = lambda _label, _fraction: None,
) -> RuntimeContract:
    """Calibrate the head of the model in `folder` and write its contract there.

    Raises:
        UsageError: there is a contract already.
        HeadMissingError: there is no head.
        CalibrationError: the head's wiring can't be decided, or its norms have to be corrected.
    """
    if (folder / CONTRACT_NAME).exists():
        raise UsageError(
            f"{folder} has a contract already.",
            hint=f"`mtplx forge verify PATH --stamp` renews its evidence; delete {CONTRACT_NAME} to "
            "write a new one.",
        )
    from mtplx.forge.calibrate.calibration import calibrate
    from mtplx.forge.calibrate.texts import calibration_texts, texts_from_file
    from mtplx.runtime.loading.folder import load

    model = load(folder, on_progress=on_progress)
    if model.head is None:
        raise HeadMissingError(
            f"{folder} has no MTP head to write a contract for.",
            hint="`mtplx inspect` says what it is.",
        )
    texts = (
        calibration_texts(model)
        if calibration_text is None
        else texts_from_file(model, calibration_text)
    )
    found = calibrate(model, texts, on_progress=on_progress)
    if found.norm_shift:
        raise CalibrationError(
            f"The head of {folder} has norm gains stored in another convention: "
            f"{', '.join(sorted(found.norm_shift))}.",
            hint="`mtplx forge build` writes a corrected copy.",
        )
    evidence = Evidence(
        head={
            "norm_encoding": model.head_norm_encoding,
            "quantization": model.inspection.quantization,
        },
        calibration=found.to_json(),
    )
    return brand(folder, evidence, with_content=True)
