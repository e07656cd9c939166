"""Statistics count what the rounds did."""

from __future__ import annotations

import json

import pytest

from mtplx.runtime.decode.depth import Costs
from mtplx.runtime.decode.stats import Stats

KEYS = {
    "prompt_tokens",
    "completion_tokens",
    "ttft_s",
    "prefill_tok_s",
    "decode_tok_s",
    "rounds",
    "drafted_by_depth",
    "accepted_by_depth",
    "acceptance_by_depth",
    "v",
    "c",
    "o",
}


def test_acceptance_is_counted_by_depth() -> None:
    stats = Stats()
    for drafted, accepted in ((3, 3), (3, 1), (3, 0), (1, 1), (0, 0)):
        stats.record_round(drafted, accepted, 0.5)
    assert stats.rounds == 5
    assert stats.drafted_by_depth[:4] == [4, 3, 3, 0]
    assert stats.accepted_by_depth[:4] == [3, 1, 1, 0]
    assert stats.deepest == 3
    assert stats.acceptance_by_depth == [0.75, 1 / 3, 1 / 3]
    assert stats.decode_seconds == 2.5


def test_speeds_leave_out_what_was_not_computed() -> None:
    stats = Stats(prompt_tokens=100, reused_tokens=60, completion_tokens=11)
    stats.prefill_seconds, stats.decode_seconds = 2.0, 5.0
    assert stats.prefill_tok_s == pytest.approx(20.0)
    assert stats.decode_tok_s == pytest.approx(2.0)


def test_what_was_not_measured_is_null() -> None:
    found = Stats(prompt_tokens=3, completion_tokens=1).to_json()
    assert found.keys() == KEYS
    for key in ("ttft_s", "prefill_tok_s", "decode_tok_s", "v", "c", "o"):
        assert found[key] is None
    assert found["drafted_by_depth"] == found["acceptance_by_depth"] == []
    json.dumps(found, allow_nan=False)


def test_measured_costs_are_shown() -> None:
    found = Stats(costs=Costs((1.0, 1.2), 0.1, 0.02, 0.01)).to_json()
    assert (found["v"], found["c"], found["o"]) == ([1.0, 1.2], 0.1, None)


def test_the_overhead_is_what_the_forwards_do_not_explain() -> None:
    stats = Stats(costs=Costs((1.0, 1.2), 0.1, 0.02, 0.01))
    stats.record_round(1, 1, 0.02)
    stats.record_round(0, 0, 0.012)
    # 3.2 plain steps of time, of which 1.2 + 0.1 and 1.0 are forwards.
    assert stats.to_json()["o"] == pytest.approx((3.2 - 2.3) / 2)


def test_rounds_deeper_than_was_measured_have_no_known_overhead() -> None:
    stats = Stats(costs=Costs((1.0, 1.2), 0.1, 0.02, 0.01))
    stats.record_round(2, 1, 0.02)
    assert stats.to_json()["o"] is None
