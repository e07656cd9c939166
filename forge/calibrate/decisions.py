"""From the best candidate of a search to the one that is adopted: every axis decided, or left at its default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mtplx.contracts.family import Wiring
from mtplx.forge.calibrate.candidates import ORDERS, POINTS, SHIFTS, Candidate
from mtplx.forge.calibrate.scoring import Scorer
from mtplx.forge.calibrate.significance import ALPHA, CLEAR, Choice, choose, choose_likelier


class Decisions:
    """Decides one axis after the other, starting from the best candidate found.

    `made` maps each axis (`concat`, `feed`, `norms`, the name of a norm, `mask_position0`, `recycle`) to its choice.
    """

    def __init__(self, scorer: Scorer, best: Candidate, default: Wiring) -> None:
        self._scorer = scorer
        self._default = default
        self._encoding = best
        self.adopted = best
        self.made: dict[str, Choice[str]] = {}

    def decide(self, names: Sequence[str], output: int) -> Candidate:
        """The candidate to adopt; `names` are those of the norms, `output` is the index of the output norm.

        Raises:
            CalibrationError: options of an axis are equal and its default is not among them.
        """
        self._decide_inputs()
        self._decide_norms(names)
        self._decide_mask()
        if self.adopted.num_shifted:
            self._decide_output_norm(names[output], output)
        self._decide_recycle()
        return self.adopted

    def _decide_inputs(self) -> None:
        orders: dict[str, Candidate] = {order: self.adopted.wired(concat=order) for order in ORDERS}
        self._race("concat", orders, self._default.concat)
        feeds: dict[str, Candidate] = {feed: self.adopted.wired(feed=feed) for feed in POINTS}
        self._race("feed", feeds, self._default.feed)

    def _decide_norms(self, names: Sequence[str]) -> None:
        """The encoding of all, then each norm against the encoding of all, or, in a mixture, against as loaded."""
        best = self.adopted
        if best.is_uniform:
            encodings = {_label(shift): best.shifted_alike(shift) for shift in SHIFTS}
        else:
            encodings = {_label(0): best.shifted_alike(0), "mixed": best}
        self._race("norms", encodings, _label(0), alpha=CLEAR)
        self._encoding = self.adopted
        for index, name in enumerate(names):
            options = _shifts_of(self.adopted, index)
            self._race(name, options, self._usual_shift(index), alpha=CLEAR)

    def _usual_shift(self, index: int) -> str:
        """Where agreement can't tell, one norm is taken to be stored as all others, or to be sound in a mixture."""
        return _label(self._encoding.shifts[index] if self._encoding.is_uniform else 0)

    def _decide_mask(self) -> None:
        options = {_switch(on): self.adopted.wired(mask_position0=on) for on in (False, True)}
        self._compare("mask_position0", options, _switch(self._default.mask_position0), (1, 2, 3))

    def _decide_output_norm(self, name: str, index: int) -> None:
        """An output norm of nearly equal gains hardly changes depth 1, but it is fed to depth 2 where recycle is post.

        It is judged under the recycling that suits it best: under the wrong one a wrong gain may look right.
        """
        depths = (1, 2, 3)
        options = [
            option.wired(recycle=recycle)
            for option in _shifts_of(self.adopted, index).values()
            for recycle in POINTS
        ]
        best = max(options, key=lambda option: int(self._scorer.hits(option, *depths).sum()))
        recycle = self.adopted.wiring.recycle
        self.adopted = self.adopted.wired(recycle=best.wiring.recycle)
        shifts = _shifts_of(self.adopted, index)
        self._compare(name, shifts, self._usual_shift(index), depths, alpha=CLEAR)
        self.adopted = self.adopted.wired(recycle=recycle)

    def _decide_recycle(self) -> None:
        """Before or after an output norm of nearly equal gains is nearly the same to the next depth.

        Both then agree with the trunk equally often; the likelihood of the text, which varies less, decides.
        """
        options: dict[str, Candidate] = {
            recycle: self.adopted.wired(recycle=recycle) for recycle in POINTS
        }
        self._compare("recycle", options, self._default.recycle, (2, 3))
        if self.made["recycle"].reason != "measured":
            rows = {key: self._scorer.likelihood(option, 2, 3) for key, option in options.items()}
            self.made["recycle"] = choose_likelier("recycle", rows)
            self.adopted = options[self.made["recycle"].option]

    def _race(
        self, axis: str, options: Mapping[str, Candidate], default: str, *, alpha: float = ALPHA
    ) -> None:
        """Decide at depth 1; options that are clearly worse are not scored to the end."""
        left = self._scorer.race(options.values())
        self._compare(
            axis, {k: o for k, o in options.items() if o in left}, default, (1,), alpha=alpha
        )

    def _compare(
        self,
        axis: str,
        options: Mapping[str, Candidate],
        default: str,
        depths: tuple[int, ...],
        *,
        alpha: float = ALPHA,
    ) -> None:
        hits = {key: self._scorer.hits(option, *depths) for key, option in options.items()}
        self.made[axis] = choose(axis, hits, default, alpha=alpha)
        self.adopted = options[self.made[axis].option]


def _shifts_of(candidate: Candidate, index: int) -> dict[str, Candidate]:
    """What one norm may be shifted by, the others being as they are."""
    options = {_label(shift): candidate.shifted(index, shift) for shift in SHIFTS}
    return {label: option for label, option in options.items() if option.is_of_one_sign}


def _label(shift: int) -> str:
    return f"{shift:+d}" if shift else "as loaded"


def _switch(on: bool) -> str:
    return "on" if on else "off"
