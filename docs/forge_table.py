"""Forge checkpoints with every recipe and write the table of what that costs and gains.

Usage: python docs/forge_table.py WORK_FOLDER CHECKPOINT...

Artifacts are built in WORK_FOLDER and kept there, so an interrupted run goes on where it stopped. Writes
`docs/forge-measured.json` and `docs/forge-measured.md`.
"""

import sys
from pathlib import Path
from typing import Any

from mtplx.contracts.files import write_json, write_text
from mtplx.contracts.runtime_contract import RuntimeContract, read_contract
from mtplx.forge.build import prepare_build, run_build
from mtplx.forge.calibrate.texts import calibration_texts
from mtplx.forge.recipe import load_recipe
from mtplx.forge.verify.quality import compare_quality
from mtplx.runtime.loading.folder import load

RECIPES = ("lossless", "optimized-quality", "optimized-speed")
DOCS = Path(__file__).resolve().parent
COLUMNS = (
    "checkpoint",
    "recipe",
    "weights",
    "KL (nats)",
    "top-1",
    "wiring found",
    "exact",
    "accepted at depth 1 / 2 / 3",
    "plain tok/s",
    "MTP tok/s",
    "gain (95 % interval)",
    "verdict",
)
INTRODUCTION = """# Forge, measured

Each checkpoint was forged with each recipe by `python docs/forge_table.py`, calibrated, verified and run. All figures
are in [forge-measured.json](forge-measured.json).

* **KL** and **top-1** compare the artifact's trunk with the source's, teacher-forced on {rows} rows of the
  calibration text.
* **exact**: tokens of greedy and seeded text compared with MTP on and off, the differences found, the numeric ties met.
* **accepted**: share of the drafts of each depth that stayed while decoding greedily, not conditioned on those before.
* **gain**: median of paired ratios to plain decoding of the same artifact at the best depth. A win needs 5 % and an
  interval above 1; rows that lose are shown like those that win.

Measured on: {conditions}. These are small checkpoints (8 to 32 million parameters) that fit a processor's caches: the
figures show that the machinery works, not how fast a large model will be.

"""


def main(work: Path, checkpoints: list[Path]) -> None:
    """Build, measure, write."""
    rows = []
    for source in checkpoints:
        for recipe in RECIPES:
            rows.append(measure(work, source, recipe))
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
    reference = load(source, mtp=False)
    quality = compare_quality(reference, load(artifact, mtp=False), calibration_texts(reference))
    return {
        "checkpoint": source.name,
        "recipe": recipe,
        "weight_bytes": sum(path.stat().st_size for path in artifact.rglob("*.safetensors")),
        "source_bytes": sum(path.stat().st_size for path in source.glob("model*.safetensors")),
        "kl": quality.kl,
        "top1": quality.top1,
        "rows_compared": quality.rows,
        **evidence(contract),
    }


def evidence(contract: RuntimeContract) -> dict[str, Any]:
    """What the contract says was measured."""
    assert contract.head is not None
    assert contract.calibration is not None
    assert contract.exactness is not None
    assert contract.speed_evidence is not None
    exactness = contract.exactness.model_dump(mode="json", exclude={"tested_on"})
    return {
        "wiring": contract.calibration.wiring,
        "wiring_decided_by": contract.calibration.decided_by,
        "agreement": contract.calibration.agreement,
        "exactness": exactness,
        "speed": contract.speed_evidence.model_dump(mode="json"),
        "verified_on": contract.verified_on,
    }


def document(rows: list[dict[str, Any]]) -> str:
    """The page: what was run, and the table."""
    text = INTRODUCTION.format(rows=rows[0]["rows_compared"], conditions=conditions(rows[0]))
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return text + "\n".join(lines) + "\n"


def conditions(row: dict[str, Any]) -> str:
    """Device and versions of a row in words."""
    found = dict(row["verified_on"] or {})
    versions = " ".join(f"{name} {number}" for name, number in found.pop("versions", {}).items())
    found.pop("timestamp", None)
    facts = [f"{key} {', '.join(v) if isinstance(v, list) else v}" for key, v in found.items()]
    return ", ".join([*facts, versions])


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    speed, exactness, wiring = row["speed"], row["exactness"], row["wiring"]
    low, high = speed["gain_interval"]
    accepted = " / ".join(f"{share:.2f}" for share in speed["acceptance_by_depth"])
    verdict = f"{exactness['tokens']} tokens, {exactness['differences']} differ"
    ties = exactness["numeric_ties"]
    return [
        row["checkpoint"],
        row["recipe"],
        f"{row['weight_bytes'] / 1e6:.1f} MB",
        f"{row['kl']:.5f}",
        f"{row['top1']:.2%}",
        f"feed {wiring['feed']}, recycle {wiring['recycle']}, {wiring['concat']}",
        verdict + (f", {ties} ties" if ties else ""),
        accepted,
        f"{speed['ar_tok_s']:.0f}",
        f"{speed['tok_s']:.0f} (depth {speed['depth']})",
        f"{speed['gain']:.2f} ({low:.2f} to {high:.2f})",
        speed["verdict"],
    ]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
