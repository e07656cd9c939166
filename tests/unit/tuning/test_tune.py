"""Tuning from a folder to a saved depth, with a worker and a clock that are not real."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mtplx.contracts.errors import (
    ChatTemplateMissingError,
    HeadMissingError,
    InvalidRequestError,
    ModelNotFoundError,
)
from mtplx.demo import demo_model_path
from mtplx.runtime.tuning import statistics
from mtplx.runtime.tuning.record import Depth
from mtplx.runtime.tuning.store import NAME, Content, TuningStore
from mtplx.runtime.tuning.tune import TuneResult, TuneSettings, tune
from tests.conftest import TinyFactory
from tests.support.fake_tuning import FakeClock, FakeWorker

FAST: dict[Depth, float] = {0: 50.0, 1: 65.0, 3: 30.0}
SLOW: dict[Depth, float] = {0: 50.0, 1: 50.5, 3: 30.0}


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for what is tested here, and many times faster."""
    monkeypatch.setattr(statistics, "RESAMPLES", 300)


@pytest.fixture
def store(tmp_path: Path) -> TuningStore:
    return TuningStore(tmp_path / "state" / NAME)


def tuned(
    store: TuningStore,
    speeds: Mapping[Depth, float] = FAST,
    *,
    folder: Path | None = None,
    about: Mapping[str, Any] | None = None,
    texts: dict[Depth, list[int]] | None = None,
    seed: int = 0,
    **settings: Any,
) -> tuple[TuneResult, FakeWorker]:
    clock = FakeClock()
    worker = FakeWorker(clock, speeds, about=about, texts=texts, seed=seed)
    result = tune(
        folder or demo_model_path(),
        TuneSettings(**{"depths": (1, 3), **settings}),
        store,
        start_worker=worker.open,
        clock=clock,
    )
    return result, worker


def test_the_fastest_depth_is_saved(store: TuningStore) -> None:
    result, _ = tuned(store)
    assert (result.record.depth, result.is_saved, result.was_known) == (1, True, False)
    assert re.match(r"depth 1 is 1\.\d\d times as fast as plain \(1\.", result.record.reason)
    assert store.read().records == {result.record.key: result.record}
    assert result.seconds <= 60.0
    assert result.record.domains == ("code", "prose", "chat")
    assert result.record.costs.v == (1.0, 1.1, 1.3, 1.5, 1.7)


@pytest.mark.parametrize("seed", range(5))
def test_without_a_gain_plain_decoding_is_saved_and_said(store: TuningStore, seed: int) -> None:
    result, _ = tuned(store, SLOW, seed=seed)
    assert (result.record.depth, result.is_saved) == (0, True)
    assert result.record.reason.startswith("no depth")
    assert "5 % faster" in result.record.reason
    (kept,) = store.read().records.values()
    assert kept.depth == 0


def test_drafts_that_are_never_kept_make_nothing_faster(store: TuningStore) -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, {0: 50.0, 3: 28.0}, kept={3: 0.0})
    settings = TuneSettings(depths=(3,))
    result = tune(demo_model_path(), settings, store, start_worker=worker.open, clock=clock)
    assert result.record.depth == 0
    assert result.record.rows[1].acceptance == (0.0, 0.0, 0.0)
    assert result.seconds < 30.0


def test_what_is_known_is_not_measured_again(store: TuningStore) -> None:
    first, _ = tuned(store)
    again, worker = tuned(store, SLOW)
    assert again.record == first.record
    assert (again.was_known, again.is_saved) == (True, True)
    assert worker.asked == []


def test_retune_measures_again_and_replaces(store: TuningStore) -> None:
    tuned(store)
    again, worker = tuned(store, SLOW, retune=True)
    assert worker.asked
    assert [record.depth for record in store.read().records.values()] == [0]
    assert not again.was_known


@pytest.mark.parametrize("change", [{"chip": "Another"}, {"device": {"device": "gpu"}}])
def test_another_device_is_measured_by_itself(store: TuningStore, change: dict[str, Any]) -> None:
    first, worker = tuned(store)
    device = {**worker.about["device"], **change.get("device", {})}
    other, worker = tuned(store, SLOW, about={**change, "device": device})
    assert worker.asked
    depths = {record.depth for record in store.read().records.values()}
    assert depths == {first.record.depth, other.record.depth} == {1, 0}


def test_another_kv_cache_is_measured_by_itself(store: TuningStore) -> None:
    tuned(store)
    result, worker = tuned(store, SLOW, kv_bits=8)
    assert worker.asked
    assert result.record.conditions["kv_bits"] == 8
    assert len(store.read().records) == 2


def test_a_touched_folder_of_the_same_content_is_found_and_remembered(
    store: TuningStore, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(demo_model_path(), tmp_path / "model"))
    first, _ = tuned(store, folder=folder)
    signs = set(store.read().folders)
    os.utime(folder / "config.json")
    again, worker = tuned(store, folder=folder)
    assert again.record == first.record
    assert worker.asked == []
    assert set(store.read().folders).isdisjoint(signs)


def test_a_copy_of_the_model_shares_the_result(store: TuningStore, tmp_path: Path) -> None:
    first, _ = tuned(store)
    copy = Path(shutil.copytree(demo_model_path(), tmp_path / "copy"))
    again, worker = tuned(store, folder=copy)
    assert again.record == first.record
    assert worker.asked == []
    assert len(store.read().folders) == 2


def test_changed_content_is_measured(store: TuningStore, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(demo_model_path(), tmp_path / "model"))
    first, _ = tuned(store, folder=folder)
    generation = folder / "generation_config.json"
    generation.write_text(generation.read_text() + "\n")
    again, worker = tuned(store, folder=folder)
    assert again.record.identity != first.record.identity
    assert worker.asked


def test_without_saving_nothing_is_written(store: TuningStore) -> None:
    result, _ = tuned(store, save=False)
    assert (result.record.depth, result.is_saved) == (1, False)
    assert not store.path.parent.exists()


def test_a_budget_that_is_too_short_saves_nothing(store: TuningStore) -> None:
    with pytest.raises(InvalidRequestError, match="do not suffice") as caught:
        tuned(store, budget_s=5.0)
    assert caught.value.key == "budget"
    assert store.read() == Content()


def test_time_that_passed_before_counts(store: TuningStore) -> None:
    clock = FakeClock()
    worker = FakeWorker(clock, FAST)
    with pytest.raises(InvalidRequestError, match="do not suffice"):
        tune(
            demo_model_path(),
            TuneSettings(depths=(1, 3)),
            store,
            start_worker=worker.open,
            clock=clock,
            started=clock.now - 59.0,
        )


def test_depths_left_out_for_want_of_time_are_named(store: TuningStore) -> None:
    speeds: dict[Depth, float] = {0: 50.0, 1: 60.0, 2: 75.0, 3: 66.0, 4: 62.0, 5: 58.0}
    result, _ = tuned(store, speeds, depths=(1, 2, 3, 4, 5), budget_s=28.0)
    assert result.record.depth == 2
    assert not result.record.is_decided
    assert "there was no time for more rounds of depth 5" in result.record.reason


def test_a_store_that_cannot_be_written_loses_no_result(store: TuningStore) -> None:
    store.path.parent.touch()
    result, _ = tuned(store)
    assert (result.record.depth, result.is_saved) == (1, False)
    assert result.save_error is not None
    assert result.save_error.exit_code == 2
    assert result.to_json()["save_error"]["code"] == "usage"


def test_a_store_that_cannot_be_read_is_told_and_the_model_measured(store: TuningStore) -> None:
    store.path.mkdir(parents=True)
    result, worker = tuned(store)
    assert worker.asked
    assert "cannot be read" in result.warnings[0]
    assert result.save_error is not None


@pytest.mark.parametrize("save", [True, False])
def test_a_damaged_store_is_told_once(store: TuningStore, save: bool) -> None:
    store.path.parent.mkdir()
    store.path.write_text("{")
    result, _ = tuned(store, save=save)
    (warning,) = result.warnings
    assert "damaged" in warning
    assert ("The file is now" in warning) == save
    assert store.path.read_text() != "{" if save else store.path.read_text() == "{"


def test_text_that_differs_from_plain_decoding_is_told(store: TuningStore) -> None:
    result, _ = tuned(store, texts={1: [4, 4]})
    (warning,) = result.warnings
    assert warning.startswith("depth 1 did not give the text of plain decoding")


def test_warnings_of_the_model_are_passed_on(store: TuningStore) -> None:
    result, _ = tuned(store, about={"warnings": ["no g++ found"]})
    assert result.warnings == ("no g++ found",)


def test_only_the_domains_that_were_asked_for_are_decoded(store: TuningStore) -> None:
    result, worker = tuned(store, domains=("chat",))
    assert result.record.domains == ("chat",)
    # Whatever is asked of a chat begins alike.
    assert len({prompt for _, _, prompt in worker.asked}) == 1


def test_the_json_is_the_record_and_what_became_of_it(store: TuningStore) -> None:
    result, _ = tuned(store)
    found = result.to_json()
    assert found["depth"] == 1
    assert found["rows"][0]["tok_s"].keys() == {"median", "low", "high"}
    assert (found["is_saved"], found["was_known"], found["save_error"]) == (True, False, None)


def test_a_model_without_a_head_has_nothing_to_tune(
    store: TuningStore, shared_tiny: TinyFactory
) -> None:
    folder = shared_tiny("qwen3_5", head=False)
    with pytest.raises(HeadMissingError, match="declared\\+missing"):
        tuned(store, folder=folder)


def test_a_folder_that_is_not_there_is_told(store: TuningStore, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        tuned(store, folder=tmp_path / "none")


def test_a_chat_without_a_template_is_told(store: TuningStore, shared_tiny: TinyFactory) -> None:
    folder = shared_tiny("qwen3_5", chat_template=False)
    with pytest.raises(ChatTemplateMissingError):
        tuned(store, folder=folder)
    result, _ = tuned(store, folder=folder, domains=("code", "prose"))
    assert result.record.depth == 1


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"depths": ()}, "depths"),
        ({"depths": (0, 1)}, "depths"),
        ({"depths": (9,)}, "depths"),
        ({"domains": ()}, "domains"),
        ({"domains": ("verse",)}, "domains"),
        ({"budget_s": 0.5}, "budget"),
        ({"budget_s": float("nan")}, "budget"),
        ({"budget_s": float("inf")}, "budget"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        TuneSettings(**settings)
    assert caught.value.key == key
