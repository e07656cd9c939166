"""The public tool's judgement of a contract, from the description of its format.

A table of rules: each says what a verified contract must have. Nothing of the tool is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The release whose rules these are; it compares `min_engine_version` with this.
ENGINE_VERSION = (2, 12, 2)
PROFILES = frozenset({"sustained"})
ARCHITECTURES = frozenset(
    {
        "qwen3-next-mtp",
        "deepseek-v3-mtp",
        "glm-moe-dsa-mtp",
        "glm4-moe-mtp",
        "glm4-moe-lite-mtp",
        "mimo-mtp",
        "nemotron-h-mtp",
        "step3p5-mtp",
        "hy-v3-mtp",
        "gemma4-assistant-mtp",
    }
)
_BLOCKING_STATUS = ("candidate", "fail", "pending", "blocked", "needs", "unverified")
_LOSING = frozenset(
    {
        "no_quality_passed_mtp_depth_beat_ar",
        "mtp_acceptance_collapsed",
        "no_mtp_depth_beat_ar",
        "contract_calibration_failed",
    }
)


class Rule(NamedTuple):
    """One thing that a verified contract must have."""

    name: str
    holds: Callable[[Mapping[str, Any]], bool]


def _nested(contract: Mapping[str, Any], *keys: str) -> Any:
    value: Any = contract
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _reached(version: Any) -> bool:
    return version is None or tuple(int(n) for n in version.split(".")) <= ENGINE_VERSION


def _is_allowed(contract: Mapping[str, Any]) -> bool:
    status = _nested(contract, "verification", "status") or ""
    verdict = _nested(contract, "speed_evidence", "verdict")
    return not status.startswith(_BLOCKING_STATUS) and verdict not in _LOSING


RULES = (
    Rule("mtplx_version", lambda c: isinstance(c.get("mtplx_version"), str)),
    Rule("arch_id", lambda c: c.get("arch_id") in ARCHITECTURES),
    Rule("mtp_depth_max", lambda c: type(c.get("mtp_depth_max")) is int and c["mtp_depth_max"] > 0),
    Rule("recommended_profile", lambda c: c.get("recommended_profile") in PROFILES),
    Rule("exactness_baseline", lambda c: isinstance(c.get("exactness_baseline"), dict)),
    Rule("verified_on", lambda c: isinstance(c.get("verified_on"), dict)),
    Rule("min_engine_version", lambda c: _reached(c.get("min_engine_version"))),
    Rule("no blocking verdict", _is_allowed),
)


def broken_rules(contract: Mapping[str, Any]) -> list[str]:
    """Names of the rules that ``contract`` does not keep; none means verified there."""
    return [rule.name for rule in RULES if not rule.holds(contract)]
