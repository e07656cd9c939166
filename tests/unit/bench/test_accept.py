"""Counting drafts by law, domain and depth."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplx.contracts.errors import HeadMissingError, InvalidRequestError
from mtplx.runtime.bench.accept import AcceptSettings, measure_acceptance, to_rows
from mtplx.runtime.bench.part import Options, Sampling
from mtplx.runtime.bench.tasks import DecodeTask
from mtplx.runtime.tuning.job import Outcome
from tests.support.benching import ScriptedMeasurer, use_measurers

SETTINGS = ("greedy", "coupled", "rejection", "block")


def outcome(tokens: int, rounds: int, accepted: int) -> Outcome:
    return Outcome(list(range(tokens + 1)), 0.1, 1.0, [rounds, rounds], [accepted, 0], rounds)


def test_counts_add_up_over_prompts_and_domains() -> None:
    found = {"code-1": outcome(10, 5, 4), "code-2": outcome(10, 8, 2), "chat-1": outcome(4, 4, 1)}
    rows = to_rows(dict.fromkeys(SETTINGS, found))
    table = {(row.setting, row.domain): row for row in rows}
    assert len(table) == 4 * 3
    code, everything = table["greedy", "code"], table["greedy", "all"]
    assert (code.prompts, code.tokens, code.rounds, code.drafted, code.accepted) == (
        2,
        20,
        13,
        (13, 13),
        (6, 0),
    )
    assert code.acceptance == pytest.approx((6 / 13, 0.0))
    assert everything.tokens_per_round == pytest.approx(24 / 17)
    # Three prompts carry no interval.
    assert table["block", "all"].over_coupled is None


def test_laws_are_compared_with_coupled_prompt_by_prompt() -> None:
    coupled = {f"code-{n}": outcome(10 * n, 5 * n, 4) for n in range(1, 8)}
    block = {f"code-{n}": outcome(10 * n, 4 * n, 4) for n in range(1, 8)}
    rows = to_rows({"greedy": block, "coupled": coupled, "rejection": coupled, "block": block})
    found = {row.setting: row.over_coupled for row in rows if row.domain == "all"}
    assert found["greedy"] is None
    assert found["coupled"] is None
    assert found["block"] is not None
    assert (found["block"].low, found["block"].median) == pytest.approx((1.25, 1.25))
    assert found["rejection"] is not None
    assert found["rejection"].median == pytest.approx(1.0)


def test_all_thirty_prompts_are_decoded_under_every_law(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = ScriptedMeasurer()
    use_measurers(monkeypatch, lambda _folder, _bits: own)
    settings = AcceptSettings(depth=2, max_tokens=9, sampling=Sampling(temperature=1.0, seed=5))
    report = measure_acceptance(folder, settings, Options(prefill_chunk=64))
    asked = [task for task in own.asked if isinstance(task, DecodeTask)]
    assert len(asked) == 30 * 4
    greedy, sampled = asked[::4], [task for n, task in enumerate(asked) if n % 4]
    assert {task.temperature for task in greedy} == {0.0}
    assert {task.temperature for task in sampled} == {1.0}
    assert [task.acceptance for task in asked[1:4]] == ["coupled", "rejection", "block"]
    # Each prompt has noise of its own, and all laws the same one.
    assert [task.seed for task in sampled[::3]] == list(range(5, 35))
    assert {task.seed for task in asked[1:4]} == {5}
    assert {row.prompts for row in report.rows if row.domain == "all"} == {30}


def test_the_last_seed_is_followed_by_the_first(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = ScriptedMeasurer()
    use_measurers(monkeypatch, lambda _folder, _bits: own)
    settings = AcceptSettings(
        prompts=1, max_tokens=9, sampling=Sampling(temperature=1.0, seed=2**64 - 1)
    )
    measure_acceptance(folder, settings, Options())
    seeds = [task.seed for task in own.asked if isinstance(task, DecodeTask) and task.temperature]
    assert seeds == [2**64 - 1] * 3 + [0] * 3 + [1] * 3


def test_a_model_without_head_is_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    use_measurers(monkeypatch, lambda _folder, _bits: ScriptedMeasurer(has_head=False))
    with pytest.raises(HeadMissingError, match="no drafts to count"):
        measure_acceptance(folder, AcceptSettings(), Options())


def test_laws_need_a_temperature() -> None:
    with pytest.raises(InvalidRequestError, match="temperature is 0"):
        AcceptSettings(sampling=Sampling())


@pytest.mark.parametrize(("key", "value"), [("depth", 9), ("prompts", 11), ("max_tokens", 1)])
def test_settings_out_of_range_are_refused(key: str, value: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"{key} is {value}"):
        AcceptSettings(**{key: value})  # type: ignore[arg-type]  # the key is a parameter of the test
