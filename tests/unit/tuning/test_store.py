"""The file of tuning results: what it keeps, under what, and what happens where it cannot."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from filelock import FileLock

from mtplx.contracts.errors import CorruptModelError, ResourceError, UsageError
from mtplx.contracts.inspection import Inspection, inspect_folder
from mtplx.demo import demo_model_path
from mtplx.runtime.tuning import store as store_module
from mtplx.runtime.tuning.conditions import Conditions, changes, read_conditions
from mtplx.runtime.tuning.store import (
    NAME,
    Content,
    DamagedStoreError,
    TuningStore,
    look_up,
    look_up_content,
    signature,
    tune_command,
)
from tests.support.contracts import write_verified
from tests.support.fake_tuning import ABOUT, a_record

SIGN = "s" * 64
NOW: Conditions = {
    "device": "cpu",
    "chip": "A chip",
    "memory (GiB)": 24,
    "mtplx": "1.0",
    "mlx": "0.32.4",
    "mlx-lm": "0.32.2",
    "kv_bits": None,
    "head wiring": "post/post/embedding_hidden/False/False",
}

SAVE_ONE = """
import sys
from pathlib import Path
from mtplx.contracts.inspection import inspect_folder
from mtplx.demo import demo_model_path
from mtplx.runtime.tuning.store import TuningStore
from tests.support.fake_tuning import a_record

store, name = TuningStore(Path(sys.argv[1])), sys.argv[2]
inspection = inspect_folder(demo_model_path())
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    identity = f"{name}-{number}"
    store.save(a_record(identity=identity), inspection, f"sign-{identity}")
"""


@pytest.fixture
def store(tmp_path: Path) -> TuningStore:
    return TuningStore(tmp_path / "state" / NAME)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the demo model, free to be changed."""
    return Path(shutil.copytree(demo_model_path(), tmp_path / "a model"))


@pytest.fixture
def demo() -> Inspection:
    return inspect_folder(demo_model_path())


def damaged_files(store: TuningStore) -> list[Path]:
    return sorted(store.path.parent.glob("tuning.damaged-*.json"))


def test_nothing_is_stored_where_nothing_was_saved(store: TuningStore) -> None:
    assert store.read() == Content()
    assert not store.path.parent.exists()


def test_a_record_comes_back_as_it_was_saved(store: TuningStore, demo: Inspection) -> None:
    record = a_record(conditions=NOW, depth="auto")
    assert store.save(record, demo, SIGN) == []
    assert store.read().records == {record.key: record}
    assert look_up_content(store.read(), record.identity, NOW).record == record


def test_only_the_user_may_read_it(store: TuningStore, demo: Inspection) -> None:
    store.save(a_record(), demo, SIGN)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_the_json_names_what_it_holds(store: TuningStore, demo: Inspection) -> None:
    store.save(a_record(conditions=NOW), demo, SIGN)
    (kept,) = json.loads(store.path.read_text())["records"].values()
    assert kept["depth"] == 1
    assert kept["rows"][1]["gain"].keys() == {"median", "low", "high"}
    assert kept["costs"].keys() == {"v", "c", "o", "step_seconds"}


# What a result holds for


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", "gpu"),
        ("chip", "Another chip"),
        ("memory (GiB)", 48),
        ("mtplx", "1.1"),
        ("mlx", "0.33.0"),
        ("mlx-lm", "0.33.0"),
        ("kv_bits", 8),
        ("head wiring", "post/pre/embedding_hidden/False/False"),
    ],
)
def test_a_change_of_the_conditions_makes_it_stale_and_says_which(
    store: TuningStore, demo: Inspection, name: str, value: str | int
) -> None:
    record = a_record(conditions=NOW)
    store.save(record, demo, SIGN)
    now = {**NOW, name: value}
    assert a_record(conditions=now).key != record.key
    found = look_up_content(store.read(), record.identity, now)
    then = "none" if NOW[name] is None else NOW[name]
    assert found == (None, f"{name} {then} then, {value} now")


def test_other_content_is_another_model(store: TuningStore, demo: Inspection) -> None:
    store.save(a_record(identity="a", conditions=NOW), demo, SIGN)
    assert a_record(identity="a").key != a_record(identity="b").key
    assert look_up_content(store.read(), "b", NOW) == (None, None)


def test_conditions_that_are_not_known_are_not_compared(
    store: TuningStore, demo: Inspection
) -> None:
    record = a_record(conditions=NOW)
    store.save(record, demo, SIGN)
    known = {name: NOW[name] for name in ("mlx", "kv_bits")}
    assert look_up_content(store.read(), record.identity, known).record == record


def test_what_is_told_of_several_stale_results_is_the_smallest_change(
    store: TuningStore, demo: Inspection
) -> None:
    old = {**NOW, "kv_bits": 8, "mlx": "0.31.0"}
    store.save(a_record(conditions=old), demo, SIGN)
    new = {**NOW, "kv_bits": 4, "chip": "Another chip"}
    store.save(a_record(conditions=new, time=datetime(2026, 5, 1, tzinfo=UTC)), demo, SIGN)
    found = look_up_content(store.read(), a_record().identity, {**NOW, "kv_bits": 8})
    assert found.stale == "mlx 0.31.0 then, 0.32.4 now"


def test_a_newer_result_takes_the_place_of_one_of_older_versions_only(
    store: TuningStore, demo: Inspection
) -> None:
    store.save(a_record(conditions=NOW), demo, SIGN)
    store.save(a_record(conditions={**NOW, "kv_bits": 8}), demo, SIGN)
    store.save(a_record(conditions={**NOW, "mlx": "0.33.0"}, depth=3), demo, SIGN)
    kept = [(r.conditions["mlx"], r.conditions["kv_bits"]) for r in store.read().records.values()]
    assert kept == [("0.32.4", 8), ("0.33.0", None)]


def test_the_conditions_of_a_process_name_versions_machine_and_options(folder: Path) -> None:
    bare = read_conditions(inspect_folder(folder), ABOUT["device"], "A chip", None)
    assert bare.keys() >= {"device", "chip", "blas", "memory (GiB)", "cores", "mtplx", "mlx"}
    assert bare["head wiring"] is None
    write_verified(folder)
    branded = read_conditions(inspect_folder(folder), ABOUT["device"], "A chip", 8)
    assert [text.partition(" none then")[0] for text in changes(bare, branded)] == [
        "kv_bits",
        "head wiring",
    ]


# Which folder it belongs to


def test_a_folder_is_known_again_without_reading_its_weights(
    store: TuningStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspection = inspect_folder(folder)
    record = a_record(conditions=NOW)
    store.save(record, inspection, signature(inspection))
    monkeypatch.setattr(
        "mtplx.contracts.identity.sha256_file", lambda *_, **__: pytest.fail("read")
    )
    assert look_up(store.read(), inspect_folder(folder), NOW).record == record


def test_a_folder_that_was_moved_is_known_again(store: TuningStore, folder: Path) -> None:
    inspection = inspect_folder(folder)
    record = a_record(conditions=NOW)
    store.save(record, inspection, signature(inspection))
    moved = folder.rename(folder.with_name("moved"))
    assert look_up(store.read(), inspect_folder(moved), NOW).record == record


def test_a_folder_that_was_touched_is_told_and_found_when_its_content_is_known(
    store: TuningStore, folder: Path
) -> None:
    inspection = inspect_folder(folder)
    record = a_record(identity=inspection.identity.combined, conditions=NOW)
    store.save(record, inspection, signature(inspection))
    os.utime(folder / "config.json")
    touched = inspect_folder(folder)
    assert look_up(store.read(), touched, NOW) == (None, "the files of the model were written to")
    store.remember_folder(touched, signature(touched), touched.identity.combined)
    assert look_up(store.read(), touched, NOW).record == record
    assert len(store.read().folders) == 1


def test_a_folder_whose_content_changed_is_told(store: TuningStore, folder: Path) -> None:
    inspection = inspect_folder(folder)
    store.save(a_record(conditions=NOW), inspection, signature(inspection))
    (folder / "chat_template.jinja").write_text("changed")
    found = look_up(store.read(), inspect_folder(folder), NOW)
    assert found == (None, "the files of the model were written to")


def test_a_folder_that_was_never_tuned_has_nothing_to_tell(
    store: TuningStore, folder: Path, demo: Inspection
) -> None:
    store.save(a_record(conditions=NOW), demo, signature(demo))
    assert look_up(store.read(), inspect_folder(folder), NOW) == (None, None)


def test_a_file_that_goes_while_it_is_looked_at_is_an_error_of_the_model(folder: Path) -> None:
    inspection = inspect_folder(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CorruptModelError, match="model-00002-of-00002"):
        signature(inspection)


def test_the_command_that_tunes_a_folder_is_one_that_a_shell_takes(folder: Path) -> None:
    assert tune_command(folder) == f"mtplx tune --model '{folder}'"
    assert tune_command(Path("m"), 8) == "mtplx tune --model m --kv-bits 8"


# What goes wrong


def test_two_processes_that_save_at_once_lose_nothing(store: TuningStore) -> None:
    command = [sys.executable, "-c", SAVE_ONE, str(store.path)]
    started = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.communicate("go\n", timeout=60)
    assert [process.returncode for process in started] == [0, 0]
    content = store.read()
    wanted = {f"{name}-{number}" for name in ("a", "b") for number in range(20)}
    assert {record.identity for record in content.records.values()} == wanted


def truncated(good: str) -> bytes:
    return good[: len(good) // 2].encode()


def of_another_version(good: str) -> bytes:
    return json.dumps({**json.loads(good), "schema_version": 2}).encode()


def with_a_new_key(good: str) -> bytes:
    return json.dumps({**json.loads(good), "later": 1}).encode()


def with_a_wild_depth(good: str) -> bytes:
    return good.replace('"depth": 1', '"depth": 99').encode()


def with_a_time_of_no_zone(good: str) -> bytes:
    return good.replace("03:04:00Z", "03:04:00").encode()


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        of_another_version,
        with_a_new_key,
        with_a_wild_depth,
        with_a_time_of_no_zone,
        lambda _: b"",
        lambda _: b"[]",
        lambda _: b"\xff\xfe\x00garbage",
        lambda _: b"[" * 100_000,
    ],
)
def test_a_damaged_store_is_set_aside_with_every_byte_and_told(
    store: TuningStore, demo: Inspection, damage: Callable[[str], bytes]
) -> None:
    store.save(a_record(identity="lost"), demo, SIGN)
    bad = damage(store.path.read_text())
    store.path.write_bytes(bad)
    with pytest.raises(DamagedStoreError, match="damaged, or of another version"):
        store.read()
    (warning,) = store.save(a_record(identity="kept"), demo, SIGN)
    (aside,) = damaged_files(store)
    assert str(aside) in warning
    assert aside.read_bytes() == bad
    assert [record.identity for record in store.read().records.values()] == ["kept"]


def test_what_was_set_aside_twice_is_kept_twice(store: TuningStore, demo: Inspection) -> None:
    for content in (b"one", b"two"):
        store.path.parent.mkdir(exist_ok=True)
        store.path.write_bytes(content)
        store.save(a_record(), demo, SIGN)
    assert sorted(path.read_bytes() for path in damaged_files(store)) == [b"one", b"two"]


def test_remembering_a_folder_tells_of_a_damaged_store_too(
    store: TuningStore, demo: Inspection
) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(b"{")
    (warning,) = store.remember_folder(demo, SIGN, "identity")
    assert str(damaged_files(store)[0]) in warning


def test_a_store_that_cannot_be_read_is_an_error_and_stays(
    store: TuningStore, demo: Inspection
) -> None:
    store.path.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"tuning\.json cannot be read"):
        store.read()
    with pytest.raises(UsageError, match=r"tuning\.json cannot be read"):
        store.save(a_record(), demo, SIGN)
    assert store.path.is_dir()


def test_a_folder_that_cannot_be_written_is_an_error(store: TuningStore, demo: Inspection) -> None:
    store.path.parent.touch()
    assert store.read() == Content()
    with pytest.raises(UsageError, match="cannot be written"):
        store.save(a_record(), demo, SIGN)


def test_a_full_disk_is_an_error_and_the_old_content_stays(
    store: TuningStore, demo: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(a_record(identity="old"), demo, SIGN)

    def full(_file: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match="No space left"):
        store.save(a_record(identity="new"), demo, SIGN)
    assert [record.identity for record in store.read().records.values()] == ["old"]
    assert {path.name for path in store.path.parent.iterdir()} == {NAME, f".{NAME}.lock"}


def test_a_lock_that_is_held_is_an_error_after_a_while(
    store: TuningStore, demo: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "LOCK_TIMEOUT_S", 0.1)
    store.path.parent.mkdir()
    with (
        FileLock(store.path.with_name(f".{NAME}.lock")),
        pytest.raises(UsageError, match=r"locked by another process for 0\.1 s"),
    ):
        store.save(a_record(), demo, SIGN)
    assert store.read() == Content()
