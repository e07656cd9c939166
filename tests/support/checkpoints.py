"""The small trained checkpoints, where they are present beside the repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from safetensors.numpy import load_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mtplx.contracts.families import Wiring

TrainedName = Literal["qwen3_5", "qwen3_next", "deepseek_v3", "glm4_moe", "mimo"]
TRAINED: tuple[TrainedName, ...] = ("qwen3_5", "qwen3_next", "deepseek_v3", "glm4_moe", "mimo")

REPOSITORY = Path(__file__).resolve().parents[2]
_FOLDER = REPOSITORY.parent / "shared" / "checkpoints"
CHECKPOINTS: Path | None = _FOLDER if _FOLDER.is_dir() else None

#: Greedy depth-1 agreement of head and trunk on chat prompts, measured when they were trained.
CHAT_AGREEMENT: dict[TrainedName, float] = {
    "qwen3_5": 0.852,
    "qwen3_next": 0.823,
    "deepseek_v3": 0.760,
    "glm4_moe": 0.835,
    "mimo": 0.841,
}


def require_checkpoint(name: TrainedName) -> Path:
    """The folder of a trained checkpoint; skips the test where it is absent."""
    if CHECKPOINTS is None:
        pytest.skip(f"no trained checkpoints at {_FOLDER}")
    folder = CHECKPOINTS / name
    if not (folder / "config.json").is_file():
        pytest.skip(f"no trained checkpoint {name!r} in {CHECKPOINTS}")
    return folder


def reference(name: TrainedName) -> dict[str, NDArray[Any]]:
    """The reference outputs computed by PyTorch in float32; skips where they are absent."""
    path = require_checkpoint(name) / "reference.safetensors"
    if not path.is_file():
        pytest.skip(f"no reference outputs at {path}")
    return dict(load_file(path))


def trained_wiring(name: TrainedName) -> Wiring:
    """How the heads were trained, which differs from their family's default for some."""
    from mtplx.contracts.families import Wiring

    return Wiring(
        feed="post",
        recycle="pre" if name in ("deepseek_v3", "glm4_moe") else "post",
        concat="hidden_embedding" if name == "mimo" else "embedding_hidden",
        layer_per_depth=False,
        mask_position0=False,
    )
