"""Forge a checkpoint step by step: plan it, build it, and look at what was proven.

Usage: python examples/forge.py OUT_FOLDER [SOURCE] [RECIPE]

The artifact appears in OUT_FOLDER; one that is there already is kept, and a build that was stopped goes on.
"""

import sys
from pathlib import Path

from mtplx.contracts.runtime_contract import RuntimeContract, read_contract
from mtplx.demo import demo_model_path
from mtplx.forge.build import prepare_build, run_build
from mtplx.forge.job import BuildJob
from mtplx.forge.recipe import load_recipe


def main(out: Path, source: str, recipe: str) -> int:
    """Plan, build, report; the exit code is that of the verification."""
    name = f"{Path(source).resolve().name}-{recipe}"
    run_id = f"run-{name}"
    if (out / name).is_dir() and (contract := read_contract(out / name)) is not None:
        print(f"{out / name} is there already")
        show_contract(contract)
        return 0
    job = prepare_build(
        source,
        load_recipe(recipe),
        out,
        name=name,
        run_id=run_id,
        resume=(out / run_id / "request.json").is_file(),
    )
    show_plan(job)
    result = run_build(job, Steps().report)
    print(f"\n{result.path}: {result.outcome['verdict']}")
    show_contract(result.contract)
    return result.exit_code


def show_plan(job: BuildJob) -> None:
    """What the metadata tell before anything is written."""
    plan = job.plan
    print(f"{plan.source}: {plan.format}, {plan.verdict}")
    print(f"  {plan.reasons[0]}")
    print(f"  artifact {plan.artifact_bytes / 1e6:.1f} MB with recipe {plan.recipe.name}\n")
    for number, step in enumerate(plan.steps, 1):
        print(f"{number}. {step.name}: {step.description}")
    print()


class Steps:
    """Prints a line whenever a phase begins."""

    def __init__(self) -> None:
        self._phase = ""

    def report(self, phase: str, label: str, _fraction: float) -> None:
        """What `run_build` calls, many times a second."""
        if phase != self._phase:
            self._phase = phase
            print(f"   {phase}: {label}", flush=True)


def show_contract(contract: RuntimeContract) -> None:
    """How the head is wired, and what was measured."""
    head, exactness, speed = contract.head, contract.exactness, contract.speed_evidence
    if head is not None:
        print(f"  head: feed {head.feed}, recycle {head.recycle}, {head.concat}")
    if contract.calibration is not None and contract.calibration.agreement:
        agreement = " ".join(f"{share:.2f}" for share in contract.calibration.agreement)
        print(f"  agreement by depth: {agreement}")
    if exactness is not None:
        print(f"  exact over {exactness.tokens} tokens: {'yes' if exactness.passed else 'no'}")
    if speed is not None and speed.gain is not None:
        print(f"  depth {speed.depth} is {speed.gain:.2f} times as fast as plain decoding")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    arguments = sys.argv[2:]
    sys.exit(
        main(
            Path(sys.argv[1]),
            arguments[0] if arguments else str(demo_model_path()),
            arguments[1] if len(arguments) > 1 else "optimized-quality",
        )
    )
