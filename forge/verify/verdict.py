"""What a verification concludes."""

from __future__ import annotations

from enum import StrEnum

from mtplx.contracts.contract_parts import MIN_GAIN, WINNING_VERDICT
from mtplx.contracts.errors import ExactnessError, NoGainError
from mtplx.forge.verify.exactness import ExactnessResult
from mtplx.forge.verify.law import LawResult
from mtplx.forge.verify.speed import SpeedResult

COLLAPSED = 0.05
"""A head whose first drafts stay less often than this is wired or stored wrongly."""

_SHOWN = 5


class VerifyVerdict(StrEnum):
    """Names of the public format, and two of our own: `exactness_failed` and `exactness_passed`."""

    MTP_DEPTH_WINS = WINNING_VERDICT
    NO_MTP_DEPTH_BEAT_AR = "no_mtp_depth_beat_ar"
    MTP_ACCEPTANCE_COLLAPSED = "mtp_acceptance_collapsed"
    EXACTNESS_FAILED = "exactness_failed"
    EXACTNESS_PASSED = "exactness_passed"
    """Exact; speed was not measured."""

    @property
    def exit_code(self) -> int:
        """That of the table in `contracts.errors`."""
        if self is VerifyVerdict.EXACTNESS_FAILED:
            return ExactnessError.exit_code
        is_slow = self in (
            VerifyVerdict.NO_MTP_DEPTH_BEAT_AR,
            VerifyVerdict.MTP_ACCEPTANCE_COLLAPSED,
        )
        return NoGainError.exit_code if is_slow else 0


def conclude(
    exactness: ExactnessResult, law: LawResult, speed: SpeedResult | None
) -> tuple[VerifyVerdict, tuple[str, ...]]:
    """The verdict and the reasons why it is not a win; exactness comes first."""
    if reasons := _inexact(exactness, law):
        return VerifyVerdict.EXACTNESS_FAILED, reasons
    if speed is None:
        return VerifyVerdict.EXACTNESS_PASSED, ()
    if speed.best_acceptance <= COLLAPSED:
        reason = (
            f"{speed.best_acceptance:.1%} of the first drafts were accepted, expected more than "
            f"{COLLAPSED:.0%}: the head is wired or stored wrongly, or belongs to another trunk"
        )
        return VerifyVerdict.MTP_ACCEPTANCE_COLLAPSED, (reason,)
    if speed.winner is not None:
        return VerifyVerdict.MTP_DEPTH_WINS, ()
    return VerifyVerdict.NO_MTP_DEPTH_BEAT_AR, _slow(speed)


def _slow(speed: SpeedResult) -> tuple[str, ...]:
    reasons = [
        f"depth {row.depth} is {row.gain.median:.2f} times as fast as plain decoding "
        f"({row.gain.low:.2f} to {row.gain.high:.2f}), expected {MIN_GAIN} or more and all above 1"
        for row in speed.rows[1:]
        if not row.gain.is_win
    ]
    if speed.repeats < speed.repeats_needed:
        reasons.append(
            f"{speed.repeats} repeats can't show a gain at this confidence, "
            f"{speed.repeats_needed} or more can"
        )
    return tuple(reasons)


def _inexact(exactness: ExactnessResult, law: LawResult) -> tuple[str, ...]:
    reasons = [str(parting) for parting in exactness.differences[:_SHOWN]]
    if len(exactness.differences) > _SHOWN:
        reasons.append(f"and {len(exactness.differences) - _SHOWN} more differences")
    if exactness.tokens == 0:
        reasons.append("no token was compared: the model ends every answer at once")
    reasons += [
        f"no draft was made at depth {count.depth}, so nothing of it was tested"
        for count in exactness.drafts
        if count.drafted == 0
    ]
    reasons += [
        f"{check.law} does not follow its law after {check.context}: p = {check.p_first:.2g} and "
        f"{check.p_both:.2g}, acceptance {check.acceptance:.3f} where {check.expected_acceptance:.3f} "
        f"is due ({check.standard_errors:+.1f} standard errors)"
        for check in law.failed
    ]
    return tuple(reasons)
