"""The evidence of a contract, for reading."""

from typing import TYPE_CHECKING

from mtplx.render import Row

if TYPE_CHECKING:
    from mtplx.contracts.runtime_contract import RuntimeContract


def contract_rows(contract: "RuntimeContract") -> list[Row]:
    """Head, calibration, exactness and speed; what a contract does not say is left out."""
    rows: list[Row] = []
    if contract.labels:
        rows.append(Row("labels", ", ".join(contract.labels)))
    if (head := contract.head) is not None:
        packed = f", {len(head.quantization)} modules packed" if head.quantization else ""
        rows.append(Row("head", f"feed {head.feed}, recycle {head.recycle}, {head.concat}{packed}"))
    if (calibration := contract.calibration) is not None and calibration.agreement:
        shares = " ".join(f"{share:.3f}" for share in calibration.agreement)
        rows.append(Row("agreement", f"{shares} by depth, teacher-forced"))
        if calibration.norm_shift:
            rows.append(Row("norms corrected", ", ".join(sorted(calibration.norm_shift))))
    if (exactness := contract.exactness) is not None:
        found = "exact" if exactness.passed else f"{exactness.differences} differences"
        rows.append(
            Row(
                "exactness",
                f"{found} over {exactness.tokens} tokens, {exactness.numeric_ties} numeric ties",
            )
        )
    return rows + _speed_rows(contract)


def _speed_rows(contract: "RuntimeContract") -> list[Row]:
    speed = contract.speed_evidence
    if speed is None:
        return []
    rows = [Row("speed verdict", speed.verdict or "-")]
    if speed.gain is not None and speed.gain_interval is not None:
        low, high = speed.gain_interval
        rows.append(
            Row("gain", f"{speed.gain:.2f}x at depth {speed.depth}, 95 % {low:.2f} to {high:.2f}")
        )
    return rows
