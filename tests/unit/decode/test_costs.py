"""Measured costs are in units of a plain step and leave the model as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtplx.runtime.loading.folder import load

if TYPE_CHECKING:
    from tests.conftest import TinyFactory
    from tests.support.tiny_families import FamilyName


@pytest.mark.parametrize("family", ["mimo", "qwen3_next", "deepseek_v3"])
def test_costs_cover_every_width_and_are_measured_once(
    shared_tiny: TinyFactory, family: FamilyName
) -> None:
    model = load(shared_tiny(family))
    costs = model.costs(3)
    assert len(costs.rows) >= 4
    assert costs.rows[0] == 1.0
    assert all(cost > 0 for cost in (*costs.rows, costs.draft, costs.overhead, costs.step_seconds))
    assert model.costs(3) is costs


def test_measuring_changes_no_answer(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("qwen3_5"))
    options = {"max_tokens": 12, "temperature": 0.0, "depth": 2}
    before = model.generate([1, 2, 3], **options)
    model.costs()
    assert model.generate([1, 2, 3], **options).token_ids == before.token_ids


def test_costs_stand_in_the_statistics_of_an_adaptive_run(shared_tiny: TinyFactory) -> None:
    model = load(shared_tiny("mimo"))
    stats = model.generate([1, 2, 3], max_tokens=4, depth="auto").stats.to_json()
    assert stats["v"][0] == 1.0
    assert stats["c"] > 0
    assert isinstance(stats["o"], float)
