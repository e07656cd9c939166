"""Which of several options agrees best, judged on the very rows that two of them decide differently."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mtplx.contracts.errors import CalibrationError

Reason = Literal[
    "measured",
    "measured by likelihood",
    "tie, family default",
    "immaterial",
    "immaterial, likelier",
]
Option = TypeVar("Option")

# Chance of calling one axis decided when its options are equal.
ALPHA = 0.01
# What it takes to contradict the head as it was loaded: strict enough for the hundreds of comparisons of a search,
# and for rows of one text that are not quite independent.
CLEAR = 1e-6
# Options that differ on fewer rows than this share can't differ by more in agreement either.
_IMMATERIAL = 0.01


class Choice(NamedTuple, Generic[Option]):
    """The option taken and why; `p` belongs to the closest rival (at most this, where all were dropped early)."""

    option: Option
    reason: Reason
    p: float


def sign_test(wins: int, losses: int) -> float:
    """Two-sided exact p-value of `wins` against `losses` when either is as likely.

    On the discordant rows of a paired comparison this is McNemar's test (Psychometrika 12, 1947) in its exact form.
    """
    total, fewer = wins + losses, min(wins, losses)
    tail = term = 1
    for k in range(fewer):
        term = term * (total - k) // (k + 1)
        tail += term
    return min(1.0, 2 * math.exp(math.log(tail) - total * math.log(2)))


def compare(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    """p-value of the difference in agreement of two options on the same rows."""
    return sign_test(int((first & ~second).sum()), int((second & ~first).sum()))


def choose(
    axis: str,
    options: Mapping[Option, NDArray[np.bool_]],
    default: Option,
    *,
    alpha: float = ALPHA,
) -> Choice[Option]:
    """The option whose rows agree most, or `default` when that can't be told from it.

    `options` maps each option to whether each row agreed, over the same rows; those known to be clearly worse may be
    left out. With several rivals the chance `alpha` of a false finding is shared out among them (Bonferroni).

    Raises:
        CalibrationError: the best options are equal and `default` is worse than they.
    """
    # Of options with the same count the default comes first.
    best, *rivals = sorted(options, key=lambda o: (-int(options[o].sum()), o != default))
    p_values = {rival: compare(options[best], options[rival]) for rival in rivals}
    closest = max(p_values.values(), default=CLEAR)
    tied = [best, *(rival for rival in rivals if p_values[rival] > alpha / len(rivals))]
    if len(tied) == 1:
        return Choice(best, "measured", closest)
    if default not in tied:
        raise _unresolved(axis, {option: options[option] for option in tied}, default, closest)
    differing = max(float((options[best] ^ options[rival]).mean()) for rival in tied)
    reason: Reason = "immaterial" if differing < _IMMATERIAL else "tie, family default"
    return Choice(default, reason, closest)


def choose_likelier(
    axis: str, options: Mapping[Option, NDArray[np.float32]], *, alpha: float = ALPHA
) -> Choice[Option]:
    """The option that gives the true tokens the higher probability, among options that agree equally often.

    `options` maps each of two options to the log-probability of the true token in each row, over the same rows. Its
    reason says whether a paired z-test finds the difference significant; where it does not, either option is as good
    as the other for all that could be measured, and the likelier one is taken all the same.

    Raises:
        CalibrationError: a log-probability is not a finite number.
    """
    worse, better = sorted(options, key=lambda option: float(options[option].mean(dtype=float)))
    gain = options[better].astype(np.float64) - options[worse]
    if not np.isfinite(gain).all():
        raise CalibrationError(
            f"{axis} is not decided: the head gives the text chances that are no numbers",
            hint="the head is damaged: download it again, or use another source",
        )
    error = gain.std() / math.sqrt(len(gain))
    p = math.erfc(float(gain.mean() / error) / math.sqrt(2.0)) if error > 0.0 else 1.0
    return Choice(better, "measured by likelihood" if p < alpha else "immaterial, likelier", p)


def _unresolved(
    axis: str, tied: Mapping[Option, NDArray[np.bool_]], default: Option, p: float
) -> CalibrationError:
    rows = len(next(iter(tied.values())))
    listing = ", ".join(f"{option} ({hits.mean():.1%})" for option, hits in tied.items())
    return CalibrationError(
        f"{axis} is not decided: {listing} agree with the trunk equally often (p = {p:.2g}, {rows} rows), "
        f"and the default, {default}, is worse",
        hint="calibrate with more text, of the kind the model was made for",
    )
