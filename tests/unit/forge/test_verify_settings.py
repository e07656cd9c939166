"""Settings of a verification: what they take, and how a replay reads them back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mtplx.contracts.errors import InvalidRequestError, UsageError
from mtplx.forge.verify.evidence import timestamp
from mtplx.forge.verify.settings import VerifySettings, settings_from_json
from mtplx.forge.verify.ties import first_difference, tolerance


def test_recorded_settings_come_back_as_they_were() -> None:
    settings = VerifySettings(depths=(1, 5), seeds=(7,), with_speed=False, temperature=1)
    assert settings_from_json(json.loads(json.dumps(settings.to_json()))) == settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("depths", ()),
        ("depths", (0,)),
        ("depths", (1, 1)),
        ("depths", (9,)),
        ("chunk_sizes", (0,)),
        ("seeds", (-1,)),
        ("prompts", ()),
        ("exact_tokens", 4),
        ("law_runs", 10),
        ("repeats", 0),
        ("max_tokens", 4),
        ("temperature", 0.0),
        ("top_p", 0.0),
        ("top_p", 1.5),
    ],
)
def test_a_value_out_of_range_is_named(key: str, value: object) -> None:
    values: dict[str, Any] = {key: value}
    with pytest.raises(InvalidRequestError, match=key) as raised:
        VerifySettings(**values)
    assert raised.value.key == key


def test_answers_leave_room_for_the_deepest_draft() -> None:
    assert VerifySettings(depths=(8,), exact_tokens=10).exact_tokens == 10
    with pytest.raises(InvalidRequestError, match="exact_tokens is 9, expected 10 or more"):
        VerifySettings(depths=(8,), exact_tokens=9)


def test_the_defaults_can_show_a_win() -> None:
    settings = VerifySettings()
    assert settings.repeats >= settings.repeats_needed
    assert VerifySettings(depths=(1, 2, 3, 4, 5, 6, 7, 8)).repeats_needed == 9


@pytest.mark.parametrize(
    "change",
    [{"depths": "12"}, {"depths": [True]}, {"repeats": 2.5}, {"with_speed": 1}, {"prompts": [3]}],
)
def test_recorded_values_of_another_type_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(change))):
        settings_from_json({**VerifySettings().to_json(), **change})


def test_settings_of_another_version_are_not_guessed_at() -> None:
    recorded = VerifySettings().to_json()
    del recorded["law_runs"]
    with pytest.raises(UsageError, match="law_runs"):
        settings_from_json({**recorded})
    with pytest.raises(UsageError, match="new_knob"):
        settings_from_json({**VerifySettings().to_json(), "new_knob": 1})


def test_the_time_can_be_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert timestamp() == "2023-11-14T22:13:20Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
        timestamp()


def test_the_first_difference_of_two_answers() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 9, 3]) == 1
    assert first_difference([1, 2, 3], [1, 2]) == 2


def test_rounding_explains_more_in_sixteen_bits_and_when_scores_are_divided() -> None:
    assert tolerance(["float32"], 20.0, 0.0) == pytest.approx(1e-3)
    assert tolerance(["float32"], 20.0, 0.5) == pytest.approx(2e-3)
    assert tolerance(["float32", "bfloat16"], 20.0, 0.0) == pytest.approx(3 * 20 / 128)
    assert tolerance(["float16"], 20.0, 0.0) == pytest.approx(3 * 20 / 1024)
