"""Forge checkpoints with every recipe and write the table of what that costs and gains.

Usage: python docs/forge_table.py WORK_FOLDER CHECKPOINT...

Artifacts are built in WORK_FOLDER and kept there, so an interrupted run goes on where it stopped. Writes
`docs/forge-measured.json` and `docs/forge-measured.md`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from mtplx.contracts.errors import ExactnessError
from mtplx.contracts.files import write_json, write_text
from mtplx.contracts.runtime_contract import read_contract
from mtplx.forge.build import prepare_build, run_build
from mtplx.forge.recipe import load_recipe
from mtplx.forge.verify.quality import compare_quality
from mtplx.forge.calibrate.texts import calibration_texts
from mtplx.runtime.loading.folder import load

RECIPES = ("lossless", "optimized-quality", "optimized-speed")
DOCS = Path(__file__).resolve().parent
HEADER = (
    "| checkpoint | recipe | size | KL (nats) | top-1 | exact | accepted at depth 1, 2, 3 "
    "| plain tok/s | best MTP | gain (95 %) | verdict |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|\n"
)


def main(work: Path, checkpoints: list[Path]) -> None:
    """Build, measure, write."""
    rows = [measure(work, source, recipe) for source in checkpoints for recipe in RECIPES]
    write_json(DOCS / "forge-measured.json", {"rows": rows})
    write_text(DOCS / "forge-measured.md", document(rows))


def measure(work: Path, source: Path, recipe: str) -> dict[str, Any]:
    """One artifact: built unless it is there, and compared with its source."""
    name = f"{source.name}-mtplx-{recipe}"
    artifact = work / name
    if not artifact.is_dir():
        resume = (work / f"run-{name}").is_dir()
        job = prepare_build(str(source), load_recipe(recipe), work, resume=resume)
        run_build(job, lambda phase, label, done: print(f"{name}: {phase} {label} {done:.0%}"))
    contract = read_contract(artifact)
    assert contract is not None
    assert contract.exactness is not None
    assert contract.speed_evidence is not None
    reference = load(source, mtp=False)
    quality = compare_quality(reference, load(artifact, mtp=False), calibration_texts(reference))
    files = [path for path in artifact.rglob("*.safetensors")]
    return {
        "checkpoint": source.name,
        "recipe": recipe,
        "weight_bytes": sum(path.stat().st_size for path in files),
        "kl": quality.kl,
        "top1": quality.top1,
        "rows_compared": quality.rows,
        "exactness": contract.exactness.model_dump(mode="json"),
        "speed": contract.speed_evidence.model_dump(mode="json"),
        "verified_on": contract.verified_on,
    }


def document(rows: list[dict[str, Any]]) -> str:
    """The page: what was run, the table, and how to make it again."""
    ...
