"""What a verification does, as values that evidence records and a replay reads back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtplx.contracts.errors import InvalidRequestError, UsageError
from mtplx.forge.verify.prompts import PROMPT_NAMES
from mtplx.runtime.decode.depth import MAX_DEPTH
from mtplx.runtime.tuning.statistics import least_pairs, simultaneous_confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySettings:
    """Settings of `verify_artifact`.

    Exactness: every prompt is decoded for `exact_tokens` tokens, greedily at each depth with the prefill chunks in
    turn, and at `temperature` and `top_p` at each depth with each seed. `law_runs` is the sample size of the test
    of the other acceptance laws. Speed: `repeats` interleaved repetitions of `max_tokens` tokens, of which a win
    needs `repeats_needed`; without `with_speed` none is measured.

    Raises:
        InvalidRequestError: a value is out of its range; `key` names it.
    """

    depths: tuple[int, ...] = (1, 2, 3)
    prompts: tuple[str, ...] = PROMPT_NAMES
    chunk_sizes: tuple[int, ...] = (1, 7, 512)
    seeds: tuple[int, ...] = (1, 2)
    exact_tokens: int = 32
    temperature: float = 0.8
    top_p: float = 0.95
    law_runs: int = 8192
    with_speed: bool = True
    repeats: int = 7
    max_tokens: int = 48

    def __post_init__(self) -> None:
        _check_each("depths", self.depths, 1, MAX_DEPTH)
        _check_each("chunk_sizes", self.chunk_sizes, 1, 2**20)
        _check_each("seeds", self.seeds, 0, 2**64 - 1)
        # A round that ends an answer drafts one token less than there is room for, and prefill gives the first.
        for_drafts = max(self.depths) + 2
        for key, least in (
            ("exact_tokens", for_drafts),
            ("law_runs", 1000),
            ("repeats", 1),
            ("max_tokens", for_drafts),
        ):
            _check(key, (value := getattr(self, key)) >= least, value, f"{least} or more")
        _check("prompts", bool(self.prompts), self.prompts, "one name or more")
        _check("temperature", self.temperature >= 0.01, self.temperature, "0.01 or more")
        _check("top_p", 0.0 < self.top_p <= 1.0, self.top_p, "a number above 0, 1 at most")

    @property
    def repeats_needed(self) -> int:
        """Repeats without which no depth can win."""
        return least_pairs(simultaneous_confidence(len(self.depths)))

    @property
    def greedy(self) -> dict[str, Any]:
        """Options of a greedy generation; nothing is left to the model's generation_config."""
        return {"temperature": 0.0, **self._common}

    def sampled(self, seed: int) -> dict[str, Any]:
        """Options of a sampled generation with coupled acceptance."""
        sampling = {"temperature": self.temperature, "top_p": self.top_p, "seed": seed}
        return {**sampling, "acceptance": "coupled", **self._common}

    @property
    def _common(self) -> dict[str, Any]:
        return {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "ignore_end_tokens": True}

    def to_json(self) -> dict[str, Any]:
        """Every setting by its name."""
        values = dataclasses.asdict(self)
        return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


def settings_from_json(recorded: Mapping[str, Any]) -> VerifySettings:
    """The settings that `to_json` gave.

    Raises:
        UsageError: they are not complete, or of a kind that this version does not know.
    """
    fields = {field.name: field for field in dataclasses.fields(VerifySettings)}
    if recorded.keys() != fields.keys():
        odd = ", ".join(sorted(recorded.keys() ^ fields.keys()))
        raise UsageError(
            f"The recorded settings of the verification differ from those of this mtplx in: {odd}.",
            hint="Replay with the version that verified the artifact, or verify it again with --stamp.",
        )
    values: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in recorded.items()
    }
    for key, value in values.items():
        _check_type(key, value, fields[key].default)
    return VerifySettings(**values)


def _check_type(key: str, value: object, example: object) -> None:
    """A contract may come from anywhere: its values need the types of the defaults."""
    kind: type | tuple[type, ...] = (int, float) if isinstance(example, float) else type(example)
    is_typed = isinstance(value, kind) and isinstance(value, bool) is isinstance(example, bool)
    if isinstance(value, tuple) and isinstance(example, tuple):
        is_typed = all(type(item) is type(example[0]) for item in value)
    _check(key, is_typed, value, f"a value like {example!r}")


def _check_each(key: str, values: tuple[int, ...], least: int, most: int) -> None:
    is_sound = bool(values) and all(least <= value <= most for value in values)
    _check(
        key,
        is_sound and len(set(values)) == len(values),
        values,
        f"different numbers from {least} to {most}",
    )


def _check(key: str, condition: bool, found: object, expected: str) -> None:
    if not condition:
        raise InvalidRequestError(f"{key} is {found!a}, expected {expected}.", key=key)
