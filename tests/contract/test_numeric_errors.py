"""Logits that are no numbers end the request with their place and count, and only that request."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

from mtplx.contracts.errors import NumericError
from mtplx.runtime.loading.folder import load

if TYPE_CHECKING:
    from mtplx.runtime.decode.result import Event
    from mtplx.runtime.model import Model
    from tests.conftest import TinyFactory

PROMPT = [3, 1, 4, 1, 5]
VOCABULARY = 64
ROWS = {
    "one NaN": ({7: math.nan}, "1 NaN, 0 +inf and 0 -inf"),
    "all NaN": (dict.fromkeys(range(VOCABULARY), math.nan), "64 NaN, 0 +inf and 0 -inf"),
    "one +inf": ({9: math.inf}, "0 NaN, 1 +inf and 0 -inf"),
    "all -inf": (dict.fromkeys(range(VOCABULARY), -math.inf), "0 NaN, 0 +inf and 64 -inf"),
}


class Poisoned:
    """A trunk whose logits for one position are spoilt."""

    def __init__(self, trunk: Any, values: dict[int, float], position: int) -> None:
        self._trunk = trunk
        self._columns, self._values = mx.array(list(values)), mx.array(list(values.values()))
        self._position = position
        self._end = 0
        self.is_armed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trunk, name)

    def forward(self, tokens: mx.array, caches: Any) -> Any:
        hidden = self._trunk.forward(tokens, caches)
        self._end = caches.offset
        return hidden

    def logits(self, hidden: mx.array) -> mx.array:
        logits: mx.array = self._trunk.logits(hidden)
        rows = hidden.shape[1]
        row = self._position - (self._end - rows + 1)
        if self.is_armed and 0 <= row < rows:
            logits[0, row, self._columns] = self._values
        return logits


@pytest.fixture(scope="module")
def sound(shared_tiny: TinyFactory) -> Model:
    return load(shared_tiny("mimo"))


def poison(model: Model, kind: str, position: int) -> tuple[Model, Poisoned]:
    trunk: Any = Poisoned(model.trunk, ROWS[kind][0], position)
    return dataclasses.replace(model, trunk=trunk), trunk


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("before", [0, 5])
@pytest.mark.parametrize("depth", [0, 3])
def test_the_request_ends_with_the_place_and_the_counts(
    sound: Model, kind: str, temperature: float, before: int, depth: int
) -> None:
    options = {"temperature": temperature, "depth": depth, "seed": 3, "ignore_end_tokens": True}
    expected = sound.generate(PROMPT, **options, max_tokens=20).token_ids
    model, trunk = poison(sound, kind, len(PROMPT) + before)
    events: list[Event] = []
    with pytest.raises(NumericError) as caught:
        events.extend(model.stream(PROMPT, **options, max_tokens=20))
    assert caught.value.exit_code == 9
    for part in (f"position {len(PROMPT) + before}", "row ", ROWS[kind][1], "of 64 logits"):
        assert part in caught.value.message
    shown = tuple(token for event in events for token in event.token_ids)
    assert shown == expected[: len(shown)]
    assert len(shown) == before or (depth and len(shown) < before)
    assert all(event.finish_reason is None for event in events)

    trunk.is_armed = False
    again = model.generate(PROMPT, **options, max_tokens=20)
    assert again.token_ids == expected


def test_a_mask_of_single_tokens_is_no_error(sound: Model) -> None:
    trunk: Any = Poisoned(sound.trunk, dict.fromkeys(range(40), -math.inf), len(PROMPT))
    model = dataclasses.replace(sound, trunk=trunk)
    assert model.generate(PROMPT, max_tokens=1, temperature=0.0, depth=0).token_ids[0] >= 40


@pytest.mark.parametrize("depth", [0, 2])
def test_weights_that_overflow_are_told_at_the_first_token(tiny: TinyFactory, depth: int) -> None:
    from tests.support.disk import poison_with_nan

    folder = tiny("glm4_moe")
    poison_with_nan(folder, r"layers\.1\.post_attention_layernorm")
    model = load(folder)
    with pytest.raises(NumericError, match=r"position 5 .*64 NaN"):
        model.generate(PROMPT, depth=depth)
