"""Doing a recorded verification again, and comparing what comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mtplx.contracts.errors import UsageError
from mtplx.contracts.runtime_contract import read_contract
from mtplx.forge.verify.settings import VerifySettings, settings_from_json
from mtplx.forge.verify.verify import Verification

_NEEDED = ("settings", "prompts", "plain_sha256")


class Recorded(NamedTuple):
    """A verification as a contract records it; `verdict` is None where speed was not measured."""

    settings: VerifySettings
    tested_on: Mapping[str, Any]
    passed: bool
    verdict: str | None


class Replay(NamedTuple):
    """How a repetition compares: what came out differently, and what was different to begin with."""

    differences: tuple[str, ...]
    conditions: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values; `same` when nothing came out differently."""
        return {
            "same": not self.differences,
            "differences": list(self.differences),
            "other_conditions": list(self.conditions),
        }


def read_recorded(folder: Path, *, with_speed: bool = True) -> Recorded:
    """The verification that the contract in `folder` records, without speed where it records none.

    Raises:
        UsageError: there is none, or it does not say what was done.
        CorruptModelError: the contract can't be read.
    """
    contract = read_contract(folder)
    exactness = contract.exactness if contract is not None else None
    if exactness is None or any(key not in exactness.tested_on for key in _NEEDED):
        raise UsageError(
            f"{folder} has no contract that records a verification to replay.",
            hint="`mtplx forge verify PATH --stamp` verifies it and records how.",
        )
    tested = exactness.tested_on
    if not isinstance(tested["settings"], Mapping) or not isinstance(tested["prompts"], Mapping):
        raise UsageError(
            f"The contract of {folder} records settings that are no settings.",
            hint="Verify it again with --stamp.",
        )
    speed = contract.speed_evidence if contract is not None else None
    settings = settings_from_json(tested["settings"])
    settings = dataclasses.replace(settings, with_speed=with_speed and speed is not None)
    return Recorded(settings, tested, exactness.passed, speed.verdict if speed else None)


def compare_replay(recorded: Recorded, found: Verification) -> Replay:
    """What the repetition found otherwise; other versions and devices are told, and explain a lot."""
    differences, tested = [], recorded.tested_on
    passed = found.contract_fields()["exactness"]["passed"]
    if passed != recorded.passed:
        differences.append(f"exactness passed: {recorded.passed} recorded, {passed} now")
    if tested["plain_sha256"] != found.exactness.plain_sha256:
        differences.append("plain decoding gives other text than recorded")
    is_comparable = recorded.verdict is not None and found.speed is not None
    if is_comparable and recorded.verdict != found.verdict:
        differences.append(f"verdict: {recorded.verdict} recorded, {found.verdict} now")
    prompts = {prompt.name: prompt.sha256 for prompt in found.prompts}
    now = {**found.on, "prompts": prompts}
    conditions = [
        f"{key}: {tested.get(key)} recorded, {value} now"
        for key, value in now.items()
        if tested.get(key) != value
    ]
    return Replay(tuple(differences), tuple(conditions))
