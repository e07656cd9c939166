"""The acceptance laws on plain numbers, as the papers state them.

This is the reference that the array code in `rejection` and `block` is tested against. The
functions take any exact or floating number type, so that tests can enumerate small vocabularies
with `fractions.Fraction`.

Arguments: `targets` holds k + 1 rows, `targets[i][x]` = M_b(x | X^i), the target law after i
drafts; `draft_laws` holds k rows, `draft_laws[i][x]` = M_s(x | X^i); `drafts` = X_1 .. X_k.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

Number = TypeVar("Number", float, Fraction)


class Outcome(NamedTuple, Generic[Number]):
    """What a law does with one block of drafts."""

    accepted: list[Number]
    """P(tau = j): the chance that exactly the first j drafts stay, j = 0 .. k."""

    next_laws: list[list[Number]]
    """The law of the next token given tau = j, j = 0 .. k."""


def residual(
    target: Sequence[Number], draft: Sequence[Number], scale: Number
) -> tuple[list[Number], Number]:
    """max(scale * M_b - M_s, 0), not normalised, and its sum."""
    zero = scale - scale
    rest = [max(scale * p - q, zero) for p, q in zip(target, draft, strict=True)]
    return rest, _total(rest)


def rejection_acceptance(
    targets: Sequence[Sequence[Number]],
    draft_laws: Sequence[Sequence[Number]],
    drafts: Sequence[int],
) -> list[Number]:
    """Chance that draft i stays if all before it stayed: min(1, M_b / M_s).

    Leviathan et al. 2211.17192, algorithm 1; Chen et al. 2302.01318, algorithm 2.
    """
    one = _one(targets)
    return [min(p[x] / q[x], one) for p, q, x in zip(targets, draft_laws, drafts, strict=False)]


def rejection_outcome(
    targets: Sequence[Sequence[Number]],
    draft_laws: Sequence[Sequence[Number]],
    drafts: Sequence[int],
) -> Outcome[Number]:
    """The first draft that fails ends the block; its place is drawn from the residual."""
    chances = rejection_acceptance(targets, draft_laws, drafts)
    one = _one(targets)
    accepted: list[Number] = []
    reached = one
    for chance in chances:
        accepted.append(reached * (one - chance))
        reached = reached * chance
    accepted.append(reached)
    scales = [one] * len(drafts)
    return Outcome(accepted, _next_laws(targets, draft_laws, scales))


def block_joint(
    targets: Sequence[Sequence[Number]],
    draft_laws: Sequence[Sequence[Number]],
    drafts: Sequence[int],
) -> list[Number]:
    """p_0 .. p_k of block verification: p_0 = 1, p_i = min(p_{i-1} * M_b / M_s, 1).

    Sun et al. 2403.10444, algorithm 2. p_i weighs the whole prefix X^i, so a draft that the
    target likes better than the drafter makes up for one that it likes less.
    """
    one = _one(targets)
    joint = [one]
    for p, q, x in zip(targets, draft_laws, drafts, strict=False):
        joint.append(min(joint[-1] * p[x] / q[x], one))
    return joint


def block_acceptance(
    targets: Sequence[Sequence[Number]],
    draft_laws: Sequence[Sequence[Number]],
    drafts: Sequence[int],
) -> list[Number]:
    """h_1 .. h_k, the chance that prefix X^i passes its own test.

    Sun et al. 2403.10444, algorithm 2: h_i = S_i / (S_i + 1 - p_i) with
    S_i = sum_x max(p_i * M_b(x | X^i) - M_s(x | X^i), 0), and h_k = p_k.
    """
    joint = block_joint(targets, draft_laws, drafts)
    one = joint[0]
    chances: list[Number] = []
    for i in range(1, len(drafts)):
        _, mass = residual(targets[i], draft_laws[i], joint[i])
        below = mass + one - joint[i]
        # Both are 0 when p_i = 1 and the laws agree; whatever follows is then accepted anyway.
        chances.append(mass / below if below else one)
    if drafts:
        chances.append(joint[-1])
    return chances


def block_outcome(
    targets: Sequence[Sequence[Number]],
    draft_laws: Sequence[Sequence[Number]],
    drafts: Sequence[int],
) -> Outcome[Number]:
    """Every prefix is tested independently and the longest that passes stays.

    The next token after X^tau comes from max(p_tau * M_b - M_s, 0), or from the target when all
    drafts stay.
    """
    chances = block_acceptance(targets, draft_laws, drafts)
    joint = block_joint(targets, draft_laws, drafts)
    one = joint[0]
    accepted: list[Number] = []
    none_longer = one
    for chance in reversed(chances):
        accepted.append(none_longer * chance)
        none_longer = none_longer * (one - chance)
    accepted.append(none_longer)
    return Outcome(accepted[::-1], _next_laws(targets, draft_laws, joint[:-1]))


def _next_laws(
    targets: Sequence[Sequence[Number]],
    draft_laws: Sequence[Sequence[Number]],
    scales: Sequence[Number],
) -> list[list[Number]]:
    """Normalised residuals for tau = 0 .. k - 1, then the target's last row."""
    laws: list[list[Number]] = []
    for target, draft, scale in zip(targets, draft_laws, scales, strict=False):
        rest, mass = residual(target, draft, scale)
        # An empty residual belongs to a tau of chance 0.
        laws.append([value / mass for value in rest] if mass else list(target))
    laws.append(list(targets[-1]))
    return laws


def _one(targets: Sequence[Sequence[Number]]) -> Number:
    """1 in the number type of the laws."""
    total = _total(targets[0])
    return total / total


def _total(values: Sequence[Number]) -> Number:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
