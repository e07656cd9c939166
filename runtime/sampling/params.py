"""What a request asks of the sampler, checked once."""

import math
from dataclasses import dataclass

from mtplx.contracts.errors import InvalidRequestError

GREEDY_BELOW = 1e-5
"""Temperatures below this mean greedy decoding: dividing by less gains nothing but overflow."""

_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 1e6),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (1e-3, 1e3),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
}

_MAX_BIAS = 1e4


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Settings of the sampling pipeline; the defaults are plain greedy decoding.

    `top_k` 0, `top_p` 1, `min_p` 0, `repetition_penalty` 1 and the other penalties 0 are off.
    Raises InvalidRequestError, with the key, for a value outside its range or not a number.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for key, (low, high) in _RANGES.items():
            value = _number(key, getattr(self, key))
            if not low <= value <= high:
                raise _invalid(key, value, f"a number from {low:g} to {high:g}")
        top_p = _number("top_p", self.top_p)
        if not 0.0 < top_p <= 1.0:
            raise _invalid("top_p", top_p, "a number above 0 and at most 1 (1 is off)")
        if not _is_int(self.top_k) or self.top_k < 0:
            raise _invalid("top_k", self.top_k, "a whole number, 0 or more (0 is off)")
        _check_bias(self.logit_bias)

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the most likely one; the temperature alone decides."""
        return self.temperature < GREEDY_BELOW

    @property
    def has_penalties(self) -> bool:
        """Whether scores depend on the tokens seen so far."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


def _check_bias(logit_bias: tuple[tuple[int, float], ...]) -> None:
    """Refuse ids that are no ids or come twice, and values that are not finite and sane."""
    seen: set[int] = set()
    for token, bias in logit_bias:
        if not _is_int(token) or token < 0:
            raise _invalid("logit_bias", token, "token ids that are whole numbers, 0 or more")
        if token in seen:
            raise _invalid("logit_bias", token, "every token id at most once")
        seen.add(token)
        if not abs(_number("logit_bias", bias)) <= _MAX_BIAS:
            raise _invalid("logit_bias", bias, f"values from {-_MAX_BIAS:g} to {_MAX_BIAS:g}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise _invalid(key, value, "a number")
    return float(value)


def _invalid(key: str, found: object, expected: str) -> InvalidRequestError:
    return InvalidRequestError(f"{key} is {found!r}; expected {expected}.", key=key)
