"""The one file that keeps what tuning found on this machine."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from mtplx.contracts.errors import UsageError
from mtplx.contracts.files import write_error, write_json
from mtplx.contracts.folders import state_folder
from mtplx.contracts.identity import identity_files, unreadable
from mtplx.contracts.inspection import Inspection
from mtplx.runtime.tuning.conditions import VERSIONS, Conditions, changes
from mtplx.runtime.tuning.record import TuningRecord

NAME = "tuning.json"
LOCK_TIMEOUT_S = 10.0


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KnownFolder(_Part):
    """A folder that was tuned: where it was, and the identity of its content."""

    path: str
    identity: str


class Content(_Part):
    """Records by their key, and folders by the `signature` that their files had."""

    schema_version: Literal[1] = 1
    folders: dict[str, KnownFolder] = {}
    records: dict[str, TuningRecord] = {}


class Lookup(NamedTuple):
    """The record that holds under the conditions asked for, or in words what has changed since the model was tuned.

    Neither for a model that was never tuned.
    """

    record: TuningRecord | None = None
    stale: str | None = None


class DamagedStoreError(UsageError):
    """The file of tuning results cannot be understood."""

    code = "damaged_tuning_store"
    title = "Tuning results damaged"


@dataclass(frozen=True, slots=True)
class TuningStore:
    """Reads and writes `path`; every change is made under a lock, and atomically."""

    path: Path

    @classmethod
    def of_this_user(cls) -> TuningStore:
        """The store in the state folder."""
        return cls(state_folder() / NAME)

    def read(self) -> Content:
        """What is stored; nothing where there is no file.

        Raises:
            DamagedStoreError: the file is not what this version writes.
            UsageError: it cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return Content()
        except OSError as cause:
            raise UsageError(
                f"The tuning results in {self.path} cannot be read: {cause.strerror or cause}.",
                hint="Check its permissions.",
            ) from cause
        try:
            return Content.model_validate_json(data)
        except ValidationError as cause:
            raise DamagedStoreError(
                f"The tuning results in {self.path} are damaged, or of another version of mtplx.",
                hint="`mtplx tune` sets the file aside and begins a new one.",
            ) from cause

    def save(self, record: TuningRecord, inspection: Inspection, sign: str) -> list[str]:
        """Keep `record` in place of those of the same model and conditions, and of other versions.

        `sign` is the `signature` of the folder before its content was read. Returns what the user should know: a
        damaged file was set aside, and where.

        Raises:
            UsageError: the file cannot be written, or another process holds the lock.
            ResourceError: the disk is full.
        """
        with self._locked():
            content, warnings = self._content_or_new()
            kept = {
                key: other
                for key, other in content.records.items()
                if not _is_superseded(other, record)
            }
            folder = KnownFolder(path=_place(inspection), identity=record.identity)
            self._write(content, {**kept, record.key: record}, sign, folder)
        return warnings

    def remember_folder(self, inspection: Inspection, sign: str, identity: str) -> list[str]:
        """Keep which content the files of a folder have, so that they need not be hashed again.

        Returns and raises as `save` does.
        """
        with self._locked():
            content, warnings = self._content_or_new()
            folder = KnownFolder(path=_place(inspection), identity=identity)
            self._write(content, content.records, sign, folder)
        return warnings

    def _content_or_new(self) -> tuple[Content, list[str]]:
        try:
            return self.read(), []
        except DamagedStoreError as error:
            return Content(), [f"{error.message} The file is now {self._set_aside()}."]

    def _set_aside(self) -> Path:
        """Rename the file; the lock is held, so that no other has this name."""
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        return self.path.rename(self.path.with_name(f"tuning.damaged-{stamp}.json"))

    def _write(
        self, content: Content, records: dict[str, TuningRecord], sign: str, folder: KnownFolder
    ) -> None:
        """A folder has one signature, and one whose model has no record is forgotten."""
        identities = {record.identity for record in records.values()}
        folders = {
            other: known
            for other, known in content.folders.items()
            if known.path != folder.path and known.identity in identities
        }
        value = Content(folders={**folders, sign: folder}, records=records)
        write_json(self.path, value.model_dump(mode="json"), mode=0o600)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name(f".{NAME}.lock")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(lock, timeout=LOCK_TIMEOUT_S, mode=0o600):
                yield
        except Timeout as cause:
            raise UsageError(
                f"{self.path} has been locked by another process for {LOCK_TIMEOUT_S:g} s.",
                hint="Run the command again when that process has ended.",
            ) from cause
        except OSError as cause:
            raise write_error(self.path, cause) from cause


def signature(inspection: Inspection) -> str:
    """A hash of names, sizes, times and inodes of the model's files: equal means that nobody has touched them.

    Takes no reading of content, so that a start does not wait for it.

    Raises:
        CorruptModelError: a file is gone.
    """
    assert inspection.index is not None, "only models that can run are tuned"
    stamps = []
    try:
        for _, name in identity_files(inspection.path, inspection.index.files):
            found = (inspection.path / name).stat()
            stamps.append([name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino])
    except OSError as cause:
        raise unreadable(inspection.path, cause) from cause
    return hashlib.sha256(json.dumps(sorted(stamps)).encode()).hexdigest()


def look_up(content: Content, inspection: Inspection, conditions: Conditions) -> Lookup:
    """The record of the model in a folder, found by `signature`, under those of the conditions that are given.

    Raises:
        CorruptModelError: a file of the model is gone.
    """
    folder = content.folders.get(signature(inspection))
    if folder is not None:
        return look_up_content(content, folder.identity, conditions)
    if any(known.path == _place(inspection) for known in content.folders.values()):
        return Lookup(stale="the files of the model were written to")
    return Lookup()


def look_up_content(content: Content, identity: str, conditions: Conditions) -> Lookup:
    """The record of a model by its content identity, under those of the conditions that are given."""
    records = [record for record in content.records.values() if record.identity == identity]
    if not records:
        return Lookup()
    # The newest of those that differ least.
    records.sort(key=lambda record: record.time, reverse=True)
    closest = min(records, key=lambda record: len(changes(record.conditions, conditions)))
    changed = changes(closest.conditions, conditions)
    return Lookup(stale=", ".join(changed)) if changed else Lookup(closest)


def tune_command(folder: Path, kv_bits: int | None = None) -> str:
    """The command line that tunes a model, for hints."""
    options = "" if kv_bits is None else f" --kv-bits {kv_bits}"
    return f"mtplx tune --model {shlex.quote(str(folder))}{options}"


def _place(inspection: Inspection) -> str:
    return str(inspection.path.resolve())


def _is_superseded(other: TuningRecord, record: TuningRecord) -> bool:
    """Whether nothing but versions of software tells the two apart."""
    names = (other.conditions.keys() | record.conditions.keys()) - {*VERSIONS}
    return other.identity == record.identity and all(
        other.conditions.get(name) == record.conditions.get(name) for name in names
    )
